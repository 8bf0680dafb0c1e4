"""Senders: how a request reaches its destination, over HTTP or by the writer of another kind."""
