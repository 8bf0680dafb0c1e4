"""A running retrier."""
