"""What happens with the events of one micro-batch."""
