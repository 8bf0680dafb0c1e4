"""Holds failed and parked deliveries until they are due, then writes them to `retry-out`."""
