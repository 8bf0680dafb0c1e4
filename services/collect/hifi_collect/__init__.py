"""Reads events from the sources of pipes, such as topics, tables and files, and writes them to `raw`."""
