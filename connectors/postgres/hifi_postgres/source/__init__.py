"""PostgreSQL tables and queries as sources."""
