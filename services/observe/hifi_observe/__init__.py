"""Counts every event on every topic, and reports minutes, lag, loss and alarms. Serves API and console."""
