"""Keeps the newest event of each key in a table, and serves it over HTTP."""
