"""Sources that keep no position for their readers: who reads one, how far it is, and its batches."""
