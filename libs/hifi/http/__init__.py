"""HTTP for all services: the server, limits on its connections, problem details, media types."""
