"""Records and rules of the control plane: actions, verdicts, declarations, permissions."""
