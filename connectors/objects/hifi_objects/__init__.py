"""Files in folders and S3 buckets as sources and as destinations."""
