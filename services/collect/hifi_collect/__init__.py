"""Reads events from elsewhere into the stream."""
