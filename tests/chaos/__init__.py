"""Breaks a running mesh on purpose and compares the books of an outside sender and an outside destination."""
