"""Inputs that are refused, with the answer that their sender gets: `table.txt` is made from what the services answer."""
