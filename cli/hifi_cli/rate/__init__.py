"""`hifi rate`: the highest rate that a mesh sustains."""
