"""Frame, style sheet and script of the consoles."""
