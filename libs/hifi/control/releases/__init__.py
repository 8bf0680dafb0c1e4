"""Desired releases of services, and their deployments."""
