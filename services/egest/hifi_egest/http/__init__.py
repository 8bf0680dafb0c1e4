"""HTTP/1.1 client: connections, pools, DNS, credentials."""
