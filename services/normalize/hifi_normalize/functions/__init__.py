"""Users' functions, each in a process of its own with a deadline, bounded memory and no secrets."""
