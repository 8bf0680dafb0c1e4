"""The mesh in containers."""
