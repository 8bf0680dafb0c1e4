"""What the services share, in one package for each subject."""
