"""Kafka for every service: producer, consumer, followers of compacted topics, transactions, topics and admin."""
