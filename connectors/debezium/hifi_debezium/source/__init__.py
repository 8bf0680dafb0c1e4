"""Changes as events, and the connector that writes them.

A deleted row is an event without data (`changes`); Debezium writes no tombstones. TRUNCATE is in `change_events`.
"""
