"""Holds failed deliveries until they are due, parked ones until their destination is resumed; then `retry-out`."""
