"""Brokers on this machine, certificates, users, topics, backlog."""
