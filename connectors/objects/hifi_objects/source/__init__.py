"""Files of folders and S3 buckets as sources."""
