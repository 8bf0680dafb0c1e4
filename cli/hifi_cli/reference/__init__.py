"""Generates reference pages and tables: `python -m hifi_cli.reference docs`."""
