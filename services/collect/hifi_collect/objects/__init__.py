"""Rows of objects in folders and buckets."""
