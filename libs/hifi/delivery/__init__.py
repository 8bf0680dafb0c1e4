"""Kinds and states of destinations, requests, ack reports, lag of the stages."""
