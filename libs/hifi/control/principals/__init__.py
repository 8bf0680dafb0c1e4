"""Users of the management API, and the audit."""
