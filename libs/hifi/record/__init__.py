"""The record of an event on a topic: identity, hop, receipt, headers and partition."""
