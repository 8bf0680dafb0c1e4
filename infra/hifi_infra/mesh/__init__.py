"""`hifi up`: plans, starts and restarts all processes of a mesh."""
