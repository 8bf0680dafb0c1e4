"""Kubernetes from source: an API server alone, and a whole node that runs pods."""
