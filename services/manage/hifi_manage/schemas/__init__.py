"""The schema registry: versions, compatibility, changes by one instance at a time."""
