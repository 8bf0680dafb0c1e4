"""A stream that manage serves."""
