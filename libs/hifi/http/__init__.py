"""Serving HTTP: the server, limits on connections, media types."""
