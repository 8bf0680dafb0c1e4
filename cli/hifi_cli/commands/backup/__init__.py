"""Commands that save what is declared, and write it into a new stream."""
