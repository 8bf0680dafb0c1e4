"""Imports the compiled form of modules."""
