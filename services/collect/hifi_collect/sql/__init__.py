"""Rows of databases without a log, by a column whose values rise."""
