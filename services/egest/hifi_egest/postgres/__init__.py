"""PostgreSQL tables as destinations."""
