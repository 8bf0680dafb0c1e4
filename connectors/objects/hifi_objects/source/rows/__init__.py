"""Rows of a CSV, JSON lines, Avro or Parquet file."""
