"""Runs of the query: start offsets, Kafka input and output, warm-up."""
