"""Knows of every minute which events were accepted, where each one is, how late it was and which were lost."""
