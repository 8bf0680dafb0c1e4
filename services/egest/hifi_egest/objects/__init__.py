"""The kind of destinations `objects`: files in a folder or an S3-compatible bucket, each event in one of them."""
