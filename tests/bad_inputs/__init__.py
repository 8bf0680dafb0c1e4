"""Inputs that are refused, with the answer that their sender gets: `table.md` is made from what the services answer."""
