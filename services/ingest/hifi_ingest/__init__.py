"""Accepts events over HTTP and answers 2xx only after Kafka has acknowledged them."""
