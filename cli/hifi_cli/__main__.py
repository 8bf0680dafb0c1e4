"""Entry point of the program `hifi`."""

import os
import sys


def main() -> None:
    """Run the command line. Ctrl-C while the modules load ends it without a traceback, as it does later."""
    try:
        from hifi.runtime.egress import VARIABLE
        from hifi_cli.app import COMMANDS, command_line

        # What they start and check is on this machine; services that start otherwise allow public addresses only.
        os.environ.setdefault(VARIABLE, "loopback")
        # The first word is the command; help, completion and errors about an unknown command need all of them.
        first = next((argument for argument in sys.argv[1:] if argument not in ("-v", "--verbose")), None)
        command_line(first if first in COMMANDS else None)()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
