"""Proves that each event that a step reads is in its windows, or was left out for a reason."""
