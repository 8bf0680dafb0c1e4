"""The state of a running mesh: its address, consumer backlog, metrics and observe's API."""
