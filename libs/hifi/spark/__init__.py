"""Spark SQL of pipes, Spark sessions, lookups and jars."""
