"""Everything that `hifi check` checks."""
