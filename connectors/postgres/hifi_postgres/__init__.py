"""PostgreSQL: tables and queries as sources, read by a rising column, and tables as destinations."""
