"""Drift of watched fields: their distribution now, compared with that of the time before."""
