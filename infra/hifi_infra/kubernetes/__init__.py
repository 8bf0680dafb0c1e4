"""The mesh in Kubernetes: its executor."""
