"""Checks, maps, casts and masks each event as its pipe declares."""
