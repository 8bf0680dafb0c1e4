"""What every way into the stream shares: partition of a key, and reports of what was accepted."""
