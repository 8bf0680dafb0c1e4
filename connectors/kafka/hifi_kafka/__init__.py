"""Topics of any Kafka cluster as sources, and as destinations in transactions."""
