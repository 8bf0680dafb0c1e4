"""Records to deliveries and requests; lease and memory limit."""
