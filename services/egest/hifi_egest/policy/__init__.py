"""Decisions without I/O: outcome, retry tier, circuit breaker, admission."""
