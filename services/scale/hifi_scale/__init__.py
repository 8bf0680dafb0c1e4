"""Control plane: changes the number of instances of each service with its load."""
