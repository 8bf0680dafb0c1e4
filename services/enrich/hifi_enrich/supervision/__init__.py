"""Leader or standby: starts, watches, restarts and drains the query."""
