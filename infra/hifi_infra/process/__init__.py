"""Child processes: start and stop them, and end them when the process that started them ends."""
