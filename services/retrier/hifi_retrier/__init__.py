"""Keeps failed deliveries until they are due again."""
