"""Computes the results of steps: aggregates of another pipe's events in windows of time, with Spark."""
