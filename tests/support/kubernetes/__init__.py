"""A real API server of Kubernetes, without nodes: it validates, admits and keeps resources, and nothing runs."""
