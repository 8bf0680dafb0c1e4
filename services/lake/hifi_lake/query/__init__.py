"""The streaming query: start, supervision and end."""
