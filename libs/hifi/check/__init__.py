"""`hifi check`: every check of a pipe, Spark SQL included."""
