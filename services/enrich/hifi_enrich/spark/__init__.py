"""The Spark session, executors, and the class-data archive of its JVM."""
