"""CloudEvents 1.0: attributes, and HTTP requests and Kafka records to events."""
