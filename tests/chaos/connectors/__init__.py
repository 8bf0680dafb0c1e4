"""Faults under sources and destinations of every kind; what stands at the destinations is compared by id and value."""
