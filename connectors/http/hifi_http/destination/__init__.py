"""HTTP endpoints as destinations: requests, connections, pools, DNS, credentials."""
