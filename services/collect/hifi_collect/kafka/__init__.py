"""Topics of other Kafka clusters as sources."""
