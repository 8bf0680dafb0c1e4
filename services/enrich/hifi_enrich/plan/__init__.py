"""The plan of a query: every pipe compiled to broadcast expressions, and the DataFrame that calls them."""
