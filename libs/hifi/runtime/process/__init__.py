"""CPU time, and limits of processes with users' functions or files."""
