"""Recognizes events that a client or a source reader repeats."""
