"""SQL over the records of topics, for `hifi query`."""
