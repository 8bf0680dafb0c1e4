"""Kinds of destinations beside HTTP: the interface that a package implements, and the kinds that are installed."""
