"""Which destinations are parked, shared through the topic `destinations`."""
