"""Avro schemas and values, JSON Schema to Avro, and the client of schema registries."""
