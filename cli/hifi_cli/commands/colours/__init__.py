"""Commands of a stream with two colours."""
