"""What a step knows: its progress, the file of its open windows, the events of a range of `enriched`, its results."""
