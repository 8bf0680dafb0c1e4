"""What one sees over both colours of a stream: merged minutes, and the front before them."""
