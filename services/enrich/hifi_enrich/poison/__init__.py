"""Finds records on which Spark fails, and makes dead letters of them."""
