"""HTTP/1.1 to destinations: connections, their pools, and the credentials of requests."""
