"""Changes that an upgrade to the installed release needs."""
