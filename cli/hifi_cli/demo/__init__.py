"""`hifi demo`: send real flights through a complete mesh and verify every delivery outside of hifi."""
