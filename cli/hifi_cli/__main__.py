"""The program `hifi`."""

import sys


def main() -> None:
    """Run the command line. A Ctrl-C while it is still loading ends it as quietly as a later one."""
    try:
        from hifi_cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
