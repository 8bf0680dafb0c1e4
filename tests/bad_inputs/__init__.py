"""Inputs that are refused, with the answer that their sender gets: `table.txt` has what the services answer."""
