"""What the services share: one package for each subject, each importing only those below it."""
