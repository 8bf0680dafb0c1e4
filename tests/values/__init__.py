"""Values on their way from each source to each destination."""
