"""HTTP side of ingest: authentication, limits, requests and responses."""
