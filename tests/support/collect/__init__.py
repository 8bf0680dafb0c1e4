"""Streams that collect fills from a topic, and a reader of polled sources."""
