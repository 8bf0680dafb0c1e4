"""Evaluation of the `normalize` section of a pipe: JSON Schema, fields, functions, masks. No Kafka."""
