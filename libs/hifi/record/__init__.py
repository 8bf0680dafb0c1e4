"""The record of an event on a topic: headers, identity, partition."""
