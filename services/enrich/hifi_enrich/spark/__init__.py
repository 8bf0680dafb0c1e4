"""The Spark session, executors, class-data archive."""
