"""Records and rules that the services of the control plane share."""
