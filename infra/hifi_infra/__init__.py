"""Ports, Debian packages, vulnerability audit."""
