"""Control plane: puts declared pipes into force in phases, and rolls back a revision that does worse."""
