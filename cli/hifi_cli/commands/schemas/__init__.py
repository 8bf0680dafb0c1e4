"""Commands about the schemas of pipes."""
