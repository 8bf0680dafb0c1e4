"""One active instance of a service with a Spark query: which one, and the offsets at which its query starts."""
