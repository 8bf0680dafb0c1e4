"""Closed minutes: merged over partitions, judged, kept and expired."""
