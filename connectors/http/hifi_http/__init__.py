"""HTTP endpoints as destinations."""
