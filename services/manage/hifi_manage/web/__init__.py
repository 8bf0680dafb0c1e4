"""Management API, console, and the registry's REST API."""
