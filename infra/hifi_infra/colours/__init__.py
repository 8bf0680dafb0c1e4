"""Two colours of a stream, the front before them, and shifts between them."""
