"""Records about the releases of services: which one is wanted, and how far its deployment is."""
