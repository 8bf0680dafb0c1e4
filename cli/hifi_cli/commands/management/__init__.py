"""Commands about the management API."""
