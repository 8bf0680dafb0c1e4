"""Decode HTTP requests into CloudEvents."""
