"""A stream that egest delivers, and its destination."""
