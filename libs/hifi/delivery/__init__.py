"""Deliveries to destinations: kinds and states of destinations, requests, dead letters, ack reports and stage lag."""
