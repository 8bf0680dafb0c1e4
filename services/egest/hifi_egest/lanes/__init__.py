"""The lane of each destination: queue, order, circuit breaker, parking."""
