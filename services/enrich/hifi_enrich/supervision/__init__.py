"""Keeps one query of the stream running: leader election, restarts, orderly hand-over and drain."""
