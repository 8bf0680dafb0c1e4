"""PostgreSQL servers for demonstrations and tests."""
