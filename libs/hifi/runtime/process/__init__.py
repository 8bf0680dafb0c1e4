"""CPU time, and limits of processes with users' code."""
