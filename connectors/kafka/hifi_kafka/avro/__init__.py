"""Avro values and the schemas of their ids."""
