"""Declaration of lake destinations: what the pipe check, the command line and the service lake share."""
