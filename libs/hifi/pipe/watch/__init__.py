"""Fields whose distribution is watched."""
