"""Object stores, and objects that are hard to read."""
