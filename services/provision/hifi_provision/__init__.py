"""The provisioner: puts declared pipes into force in phases, and rolls back what is worse than before."""
