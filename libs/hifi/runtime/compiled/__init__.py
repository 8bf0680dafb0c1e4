"""Imports modules that mypyc compiled."""
