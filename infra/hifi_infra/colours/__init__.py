"""Two colours of a stream, their front, and shifts."""
