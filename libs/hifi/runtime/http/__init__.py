"""HTTP server, limits, problem details, OpenAPI, trace context."""
