"""Writes outcomes: retries and dead letters, then receipts, then offsets."""
