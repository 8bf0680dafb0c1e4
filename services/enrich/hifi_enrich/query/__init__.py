"""Runs of the streaming query: where each starts, how it reads and writes Kafka, and warming up."""
