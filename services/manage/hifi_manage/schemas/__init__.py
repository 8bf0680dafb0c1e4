"""The schema registry: versions and compatibility."""
