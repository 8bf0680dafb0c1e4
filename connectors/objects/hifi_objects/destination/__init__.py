"""Files in folders and S3 buckets as destinations."""
