"""Lookups: reading them, keying their rows, keeping them fresh."""
