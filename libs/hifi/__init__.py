"""What the services share, a package for each subject."""
