"""List the packages of this repository: the members of the workspace in the root's pyproject.toml.

    python requirements/members.py          # their folders: libs infra cli connectors/debezium ...
    python requirements/members.py --names  # their names: hifi-libs hifi-infra hifi-cli ...

Needs nothing but Python, since it runs before anything is installed.
"""

import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - says so instead of failing at the import below
    version = "%d.%d" % sys.version_info[:2]  # noqa: UP031 - whatever Python this is
    sys.exit("hifi needs Python 3.11 or newer and this is %s: run `make PYTHON=python3.12 ...`" % version)  # noqa: UP031

import tomllib

ROOT = Path(__file__).parents[1]


def members() -> list[Path]:
    """Folders of the packages, below the root."""
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["uv"]["workspace"]
    return [
        file.parent
        for pattern in workspace["members"]
        for file in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))
    ]


def name(member: Path) -> str:
    """Name of a package."""
    project = tomllib.loads((member / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["name"])


if __name__ == "__main__":
    if sys.argv[1:] == ["--names"]:
        print(*map(name, members()))
    else:
        print(*(member.relative_to(ROOT) for member in members()))
