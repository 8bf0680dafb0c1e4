"""One lane per destination: its queue, its requests and the health of the destination."""
