"""Declaration of Iceberg tables: what the pipe check and the service lake share."""
