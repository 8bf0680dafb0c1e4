"""The HTTP interface: rows, filters, SQL, changes, accounting."""
