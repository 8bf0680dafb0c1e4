"""Kafka Connect with Debezium as a child process."""
