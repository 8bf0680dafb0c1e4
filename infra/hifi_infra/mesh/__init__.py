"""A whole mesh on one machine: its plan, its services and brokers, and their supervision."""
