"""HTTP server, limits of requests, problem details, trace context and OpenAPI documents."""
