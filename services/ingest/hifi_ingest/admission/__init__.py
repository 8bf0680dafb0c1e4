"""Quotas, and early 429 while ingest or a stage behind it is overloaded."""
