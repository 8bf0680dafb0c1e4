"""The processes and records of the tests of normalize."""
