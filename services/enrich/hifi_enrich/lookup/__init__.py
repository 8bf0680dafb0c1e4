"""Lookup tables: load, refresh, broadcast."""
