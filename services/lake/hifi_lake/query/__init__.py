"""Runs and restarts the Spark query over `enriched`."""
