"""Finds Java, downloads jars, and builds command lines of JVMs."""
