"""CPU time, and what processes with users' code get."""
