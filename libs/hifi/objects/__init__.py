"""Buckets of S3-compatible servers, for services that read or write objects."""
