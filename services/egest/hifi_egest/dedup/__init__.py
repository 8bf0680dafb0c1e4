"""Drops copies of records, and takes over partitions of other instances."""
