"""Pipes as code: the declared model, reading it from YAML, publishing and following it over Kafka."""
