"""Iceberg tables: catalog, commits and maintenance."""
