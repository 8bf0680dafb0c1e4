"""Frame, navigation, style sheet and script of the consoles of observe and manage."""
