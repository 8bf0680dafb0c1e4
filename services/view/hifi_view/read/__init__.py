"""Reads topics into views, and learns until when a view is complete."""
