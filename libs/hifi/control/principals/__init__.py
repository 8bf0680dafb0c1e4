"""Who may use the management API, and the record of what they did."""
