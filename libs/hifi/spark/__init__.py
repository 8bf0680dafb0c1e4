"""Spark SQL of pipes: generation, checks, sessions, lookups, jars."""
