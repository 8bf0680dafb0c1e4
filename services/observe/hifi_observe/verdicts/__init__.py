"""Whether stream, services and pipes are stable, for the control plane."""
