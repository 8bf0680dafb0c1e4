"""Schemas of a pipe's data, and where they are registered."""
