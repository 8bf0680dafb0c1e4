"""Write the reference pages, and the generated sections of others: `python -m hifi_cli.reference DOCS`."""

import sys
from pathlib import Path

from hifi_cli.reference.pages import pages
from hifi_cli.reference.sections import pages_with_sections


def main() -> None:
    """Write the pages into the folder given as the first argument."""
    folder = Path(sys.argv[1])
    for name, text in (pages() | pages_with_sections(folder)).items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
