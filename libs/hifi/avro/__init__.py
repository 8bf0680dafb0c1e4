"""Avro: Confluent's wire format, schemas, values as JSON, and a client of schema registries."""
