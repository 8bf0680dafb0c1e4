"""A stream with views, and view running in this process or in its own."""
