"""Alarms: their conditions, their lifecycle, notifications and runbooks."""
