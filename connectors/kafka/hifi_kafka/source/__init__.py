"""Topics of any Kafka cluster as sources."""
