"""PostgreSQL tables and queries as sources, and tables as destinations."""
