"""Write decoded events to Kafka and report what was acknowledged."""
