"""The commands of `hifi`, one module each."""
