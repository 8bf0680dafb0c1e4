"""The mesh in Kubernetes: its executor, and two colours."""
