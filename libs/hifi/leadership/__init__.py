"""One active instance: which one runs a Spark query or reads a source, and the offsets at which a query starts."""
