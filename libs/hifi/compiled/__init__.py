"""Import of modules that were compiled with mypyc, as long as they match their sources."""
