"""Files in folders and S3 buckets: their rows as sources, and objects of rows as destinations."""
