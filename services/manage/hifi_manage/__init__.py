"""The management API: declare, change, roll back and delete pipes."""
