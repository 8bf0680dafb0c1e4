"""A micro-batch: deliveries, rows, merge, receipts."""
