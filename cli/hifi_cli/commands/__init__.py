"""One module for each command of `hifi`."""
