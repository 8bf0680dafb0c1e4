"""Watermarks of the pipes that steps read: stamps, heartbeats."""
