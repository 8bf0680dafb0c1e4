"""Sources without a log: which instance reads one, and how far it is read."""
