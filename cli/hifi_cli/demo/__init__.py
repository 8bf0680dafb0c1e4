"""`hifi demo`: real flights through a whole mesh, with books kept outside of it."""
