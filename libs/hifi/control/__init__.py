"""Records and rules of the control plane: steps, verdicts, declarations, permissions."""
