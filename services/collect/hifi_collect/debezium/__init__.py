"""Changes of PostgreSQL tables, as Debezium writes them."""
