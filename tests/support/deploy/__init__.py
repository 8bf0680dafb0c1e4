"""Meshes in which releases are deployed."""
