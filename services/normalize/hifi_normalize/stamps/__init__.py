"""Event-time watermarks of the pipes that steps read: stamps of events, heartbeats."""
