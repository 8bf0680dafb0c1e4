"""Backup and restore of what is declared."""
