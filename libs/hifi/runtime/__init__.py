"""Start and stop of a service, settings, health, logs, metrics, clock, units, caches."""
