"""Lookup tables: built from rows, refreshed in the background, and broadcast to Spark."""
