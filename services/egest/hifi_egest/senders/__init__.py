"""Sends the requests of a lane with its kind's own sender, or with its kind's writer."""
