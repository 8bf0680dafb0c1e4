"""Receivers of requests, and a proxy."""
