"""CPU time of threads, and what processes with users' functions get."""
