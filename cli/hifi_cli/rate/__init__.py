"""`hifi rate`: find the event rate that a mesh on this machine can sustain."""
