"""An event on its way to its destinations: deliveries, source partitions, requests, and what bounds them."""
