"""Recognizes events that a client sent again or a source reader read again."""
