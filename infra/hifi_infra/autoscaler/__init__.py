"""Number of instances, by CPU, backlog and lane occupancy."""
