"""`hifi demo --state`: steps over a day of flights and weather, some late."""
