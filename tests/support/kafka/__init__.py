"""Kafka with security, and the topic that a Kafka destination writes to."""
