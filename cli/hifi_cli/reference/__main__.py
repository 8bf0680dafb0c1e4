"""Write what is made from the code: `python -m hifi_cli.reference DOCS`.

Reference pages, sections of others, names of settings, and files of the Helm chart.
"""

import sys
from pathlib import Path

from hifi_cli.reference.chart import CHART, chart_files
from hifi_cli.reference.pages import pages
from hifi_cli.reference.sections import pages_with_sections
from hifi_cli.reference.settings_names import settings_file, settings_names


def main() -> None:
    """Write the pages into the folder given as the first argument."""
    folder = Path(sys.argv[1])
    for name, text in chart_files().items():
        (CHART / name).write_text(text)
    for name, text in (pages() | pages_with_sections(folder)).items():
        (folder / name).write_text(text)
    root = folder.resolve().parent
    settings_file(root).write_text(settings_names(root))


if __name__ == "__main__":
    main()
