"""Output for people: console, tables, units and the live view."""
