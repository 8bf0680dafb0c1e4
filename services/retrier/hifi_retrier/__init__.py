"""Holds deliveries that failed until they are due again."""
