"""CDC equivalence: random tables and transactions, and the same rows at a destination in the end."""
