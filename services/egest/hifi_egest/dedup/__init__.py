"""Recognize copies of records, and continue where the last owner of a partition stopped."""
