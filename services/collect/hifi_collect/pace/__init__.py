"""Which events of a source are backfill, how fast they are read, and how far the reader is."""
