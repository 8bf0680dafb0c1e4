"""`hifi demo --cdc`: the changes of a database, to a webhook, a second database and an Iceberg table."""
