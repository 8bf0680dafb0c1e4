"""The `source` section of a pipe, for each kind."""
