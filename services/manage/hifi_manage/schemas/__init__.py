"""A schema registry with Confluent's REST API, in a compacted topic of the control plane."""
