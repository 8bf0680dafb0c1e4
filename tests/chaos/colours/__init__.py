"""Changes of a stream with two colours under load."""
