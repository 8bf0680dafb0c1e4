"""Avro schemas and values, JSON Schema to Avro, schema registry client."""
