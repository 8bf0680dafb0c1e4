"""Drops events that were sent twice, validates, maps, casts and masks the rest: `raw` to `normalized`."""
