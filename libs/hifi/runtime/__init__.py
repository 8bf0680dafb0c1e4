"""What every process has: start and stop, settings, health checks, logs, metrics, clock, units, backoff and caches."""
