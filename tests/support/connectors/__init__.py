"""The contract that the destinations of all kinds keep."""
