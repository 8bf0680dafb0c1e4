"""A stream with a control plane."""
