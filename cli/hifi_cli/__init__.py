"""The hifi command."""
