"""What is known of the events of one partition, from the headers of its records."""
