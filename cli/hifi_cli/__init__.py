"""The command `hifi`: entry point, options, errors, interrupts."""
