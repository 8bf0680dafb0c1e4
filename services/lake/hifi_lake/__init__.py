"""Writes events to Apache Iceberg tables with Spark and pyiceberg, and records their outcomes."""
