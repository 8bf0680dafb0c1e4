"""Momentary figures: published per partition, added up per pipe."""
