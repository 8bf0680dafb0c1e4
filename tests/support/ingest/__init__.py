"""The processes and requests of the tests of ingest."""
