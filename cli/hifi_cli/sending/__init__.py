"""Sends the events of a file to ingest."""
