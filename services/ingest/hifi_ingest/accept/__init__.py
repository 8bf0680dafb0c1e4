"""Identity of each event, and the write to `raw`."""
