"""scale: changes the number of instances of a mesh's services with their load."""
