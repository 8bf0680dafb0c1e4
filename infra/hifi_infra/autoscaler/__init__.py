"""Grows and shrinks the services of a mesh with their CPU use and consumer lag."""
