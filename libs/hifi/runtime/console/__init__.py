"""Frame, style sheet and script of both consoles."""
