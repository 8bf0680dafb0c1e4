"""Breaks a running mesh on purpose and compares the logs of an outside sender and an outside destination."""
