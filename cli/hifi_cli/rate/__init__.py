"""`hifi rate`: how many events a second a mesh on this machine carries, and what each service takes for it."""
