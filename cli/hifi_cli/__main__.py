"""Entry point of the program `hifi`."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C while the modules load ends it without a traceback, as it does later."""
    try:
        from hifi_cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
