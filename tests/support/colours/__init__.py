"""Two colours of a mesh."""
