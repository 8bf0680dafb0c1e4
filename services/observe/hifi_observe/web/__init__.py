"""JSON API and console."""
