"""PostgreSQL servers and their tables."""
