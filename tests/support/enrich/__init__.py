"""Processes of enrich, and Spark's evaluation of a pipe without them."""
