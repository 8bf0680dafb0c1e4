"""`hifi demo --colours`: shifts between two colours."""
