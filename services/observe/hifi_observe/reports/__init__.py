"""Reports of the availability of pipes in a month."""
