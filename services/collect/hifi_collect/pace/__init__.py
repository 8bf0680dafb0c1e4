"""Backfill: what counts as one, its rate and its progress."""
