"""Which service delivers the events of a destination."""
