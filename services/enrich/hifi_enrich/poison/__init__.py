"""Poison records: finding a record on which Spark fails again and again, and putting it away."""
