"""Write outcomes to Kafka: retries and dead letters first, then receipts, then offsets."""
