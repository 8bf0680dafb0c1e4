"""What an upgrade to the installed release changes."""
