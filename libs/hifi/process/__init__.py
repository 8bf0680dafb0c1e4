"""What concerns a process: its CPU time, and what it gives to processes with users' code."""
