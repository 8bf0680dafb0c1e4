"""Commands that inspect what observe knows of the events of a pipe."""
