"""Avro schemas, JSON Schema to Avro, registry client."""
