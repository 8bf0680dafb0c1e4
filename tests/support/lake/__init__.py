"""A stream that lake writes to tables."""
