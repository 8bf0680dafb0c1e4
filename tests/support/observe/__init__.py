"""Streams and meshes that observe reads, and what it sends notices to."""
