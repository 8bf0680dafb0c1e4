"""Writes outcomes: retries, parked deliveries and dead letters, then receipts, then offsets."""
