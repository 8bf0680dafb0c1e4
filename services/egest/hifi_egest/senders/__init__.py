"""Sends the requests of a lane over HTTP or with another kind's writer."""
