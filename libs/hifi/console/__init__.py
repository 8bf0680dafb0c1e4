"""What the consoles of observe and manage share: frame of a page, navigation, style sheet, script and headers."""
