"""Changes of PostgreSQL tables as sources, read by Debezium in Kafka Connect."""
