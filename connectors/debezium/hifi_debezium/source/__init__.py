"""Changes as events, and the connector that writes them."""
