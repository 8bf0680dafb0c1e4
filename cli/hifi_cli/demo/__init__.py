"""`hifi demo`: real flights through a mesh, with every delivery verified."""
