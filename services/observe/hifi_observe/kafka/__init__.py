"""Reading topics into ledgers, and publishing minutes and alarms."""
