"""Drift of watched fields against earlier minutes."""
