"""Requests, limits, write keys and answers of the HTTP interface."""
