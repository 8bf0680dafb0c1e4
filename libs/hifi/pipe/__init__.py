"""Pipes: the declaration, loading it from YAML, checking, publishing and following it over Kafka."""
