"""Dead letters: write, read and replay them."""
