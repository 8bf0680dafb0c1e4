"""Bytes without meaning reach each decoder: it refuses them as it says, and nothing else happens."""
