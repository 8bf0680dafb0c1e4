"""`hifi send`: reading events from files, and handing them to ingest until each has an answer."""
