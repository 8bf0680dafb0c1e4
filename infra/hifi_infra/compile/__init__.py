"""Compilation of the pure, typed modules with mypyc."""
