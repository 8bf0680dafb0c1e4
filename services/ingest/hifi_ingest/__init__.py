"""Accepts events over HTTP, writes them to `raw`, and answers 202 when Kafka has acknowledged them."""
