"""OpenTelemetry spans of sampled events."""
