"""Formats of objects: the rows of an open file, by their numbers."""
