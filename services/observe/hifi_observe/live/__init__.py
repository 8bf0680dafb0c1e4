"""Current rates, lags and breaker states."""
