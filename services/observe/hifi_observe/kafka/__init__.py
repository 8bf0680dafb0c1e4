"""Reads all topics and offset snapshots, and publishes minutes and alarms."""
