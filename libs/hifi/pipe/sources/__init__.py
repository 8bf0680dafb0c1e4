"""Declarations of the sources that collect reads: what they have in common, and those of systems that keep no log."""
