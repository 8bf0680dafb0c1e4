"""Alarms: conditions, notifications, runbooks."""
