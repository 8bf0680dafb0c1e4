"""Joins lookups, derives fields, filters and routes events with Spark Structured Streaming: `normalized` to `enriched`."""
