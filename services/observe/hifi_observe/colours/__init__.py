"""Minutes merged over two colours, and counts of the front."""
