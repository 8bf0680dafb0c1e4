"""SQL in pipes: what users may write, the Spark SQL made of a pipe, and checking it with a local Spark."""
