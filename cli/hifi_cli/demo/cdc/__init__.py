"""`hifi demo --cdc`: changes of a database."""
