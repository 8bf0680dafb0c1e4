"""Minutes merged over partitions, and their availability."""
