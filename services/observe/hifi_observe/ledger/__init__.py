"""Counts one partition's events by minute, and closes minutes."""
