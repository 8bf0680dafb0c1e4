"""Backup and restore of what is declared: of a stream and of its control plane."""
