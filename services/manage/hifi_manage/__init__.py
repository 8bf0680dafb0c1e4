"""Control plane: management API and console for pipes, principals, audit and the schema registry."""
