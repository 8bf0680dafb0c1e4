"""Libraries that the services share, a package for each subject."""
