"""CloudEvents 1.0 from HTTP requests and Kafka records."""
