"""Sources that are Kafka topics, and records that were deleted."""
