"""Members of consumer groups, of this and of other clients."""
