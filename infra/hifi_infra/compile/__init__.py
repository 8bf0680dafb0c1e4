"""Compiles typed modules with mypyc."""
