"""Apache Iceberg tables as destinations, which the service lake writes."""
