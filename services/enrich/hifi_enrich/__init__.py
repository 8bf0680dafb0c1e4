"""Joins lookups, derives fields, filters and routes events with Spark: `normalized` to `enriched`."""
