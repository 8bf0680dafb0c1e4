"""Sources without a log: elected reader, progress."""
