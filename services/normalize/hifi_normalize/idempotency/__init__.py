"""Detect events that a client sent again."""
