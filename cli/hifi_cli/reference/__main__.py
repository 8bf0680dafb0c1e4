"""Write the reference pages: `python -m hifi_cli.reference DOCS`."""

import sys
from pathlib import Path

from hifi_cli.reference.pages import pages


def main() -> None:
    """Write the pages into the folder given as the first argument."""
    folder = Path(sys.argv[1])
    for name, text in pages(folder).items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
