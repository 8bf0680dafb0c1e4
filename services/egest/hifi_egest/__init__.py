"""Delivers events to their destinations, and records the outcome of each delivery."""
