"""The mesh in Docker Compose: its executor, and two colours."""
