"""Changes of databases, by Debezium in Kafka Connect."""
