"""A patch that breaks a guarantee of docs/reliability.md or the control of a threat, with the test that fails then."""

import re
from pathlib import Path
from typing import Final, NamedTuple

FOLDER = Path(__file__).parent
DOCS: Final = FOLDER.parents[1] / "docs"
_LABELS: Final = {"reliability": "Guarantee", "security": "Threat"}
"""Folder of the patches, and page, to the word before the promise."""


class Mutation(NamedTuple):
    """The first lines of a patch are `Guarantee: TEXT` or `Threat: TEXT`, as on the page, and `Test: PATH[::NAME]`."""

    file: Path
    promise: str
    test: str

    @property
    def name(self) -> str:
        """Of the file, without its ending."""
        return self.file.stem

    @property
    def page(self) -> str:
        """Name of the page with the promise, without its ending."""
        return self.file.parent.name


def mutations(page: str = "*") -> list[Mutation]:
    """The patches of a page, or all, by name."""
    return [_read(file) for file in sorted(FOLDER.glob(f"{page}/*.patch"), key=lambda file: file.stem)]


def guarantees() -> list[str]:
    """The guarantees of docs/reliability.md."""
    page = (DOCS / "reliability.md").read_text("utf-8")
    table = page.partition("\n## Guarantees\n")[2].partition("\n## ")[0]
    _, _, *rows = re.findall(r"^\| ?(.*?) ?\|", table, re.MULTILINE)  # after the head
    return rows


def threats() -> dict[str, set[str]]:
    """Each threat of docs/security.md, up to its colon or bracket, to the names of its tests."""
    page = (DOCS / "security.md").read_text("utf-8")
    model = page.partition("\n## Threat model\n")[2].partition("\n### ")[0]
    bullets = re.findall(r"^- (.*?)(?=\n\n|\n- |\Z)", model, re.MULTILINE | re.DOTALL)
    lines = (" ".join(bullet.split()) for bullet in bullets)
    return {re.split(r": | \((?=`)", line)[0]: set(re.findall(r"`(test_\w+)`", line)) for line in lines}


def _read(file: Path) -> Mutation:
    promise, test = file.read_text("utf-8").splitlines()[:2]
    label = _LABELS[file.parent.name]
    return Mutation(file, promise.removeprefix(f"{label}: "), test.removeprefix("Test: "))
