"""Finds the running mesh, and asks its services and observe."""
