"""Kafka topics as destinations, in transactions."""
