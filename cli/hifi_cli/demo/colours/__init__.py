"""`hifi demo --colours`."""
