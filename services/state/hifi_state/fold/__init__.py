"""Progress, open windows and results of a step."""
