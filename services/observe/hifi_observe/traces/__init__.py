"""Spans of sampled events, exported to OpenTelemetry."""
