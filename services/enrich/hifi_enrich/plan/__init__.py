"""Compiles all pipes into one Spark query."""
