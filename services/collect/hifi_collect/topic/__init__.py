"""Sources that are Kafka topics: reads a topic in a consumer group, and finds records that were deleted."""
