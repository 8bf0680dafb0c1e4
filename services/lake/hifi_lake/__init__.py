"""The service lake: writes events to Apache Iceberg tables."""
