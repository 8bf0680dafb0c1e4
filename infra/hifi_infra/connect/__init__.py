"""Kafka Connect with Debezium, for the changes of databases."""
