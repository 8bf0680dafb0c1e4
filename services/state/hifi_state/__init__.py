"""Computes steps with Spark: aggregates of another pipe's events in windows of time."""
