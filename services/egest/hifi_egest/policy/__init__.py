"""Pure rules: what an answer means, when to retry, when to stop sending, how much to admit."""
