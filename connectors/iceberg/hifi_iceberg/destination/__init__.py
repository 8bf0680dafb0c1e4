"""Iceberg tables: catalog, commits, progress, files."""
