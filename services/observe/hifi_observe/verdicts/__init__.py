"""Verdicts on the stream, its services and its pipes, for those who change them."""
