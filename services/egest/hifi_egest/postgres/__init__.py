"""The kind of destinations `postgres`: rows of a table."""
