"""`hifi demo --state`: steps over a day of flights, some late."""
