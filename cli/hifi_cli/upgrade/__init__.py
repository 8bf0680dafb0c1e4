"""Changes of an upgrade to the installed release."""
