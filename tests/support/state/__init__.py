"""Logs of events with stamps, and what a step must make of them."""
