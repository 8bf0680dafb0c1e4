"""The Spark session of the service, and the class-data archive that makes its start faster."""
