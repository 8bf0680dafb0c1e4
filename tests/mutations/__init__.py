"""Patches that break a guarantee each, and the runner that expects its test to fail."""
