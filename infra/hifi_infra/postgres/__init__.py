"""PostgreSQL servers for demos and tests."""
