"""Output for people: tables, units, live view."""
