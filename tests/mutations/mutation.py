"""A patch that breaks a guarantee of docs/reliability.md, with the test that fails then."""

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


class Mutation(NamedTuple):
    """The first lines of a patch are `Guarantee: TEXT`, as on the page, and `Test: PATH[::NAME]`."""

    file: Path
    guarantee: str
    test: str

    @property
    def name(self) -> str:
        """Of the file, without its ending."""
        return self.file.stem


def mutations() -> list[Mutation]:
    """All patches, by name."""
    return [_read(file) for file in sorted(FOLDER.glob("*.patch"))]


def _read(file: Path) -> Mutation:
    guarantee, test = file.read_text().splitlines()[:2]
    return Mutation(file, guarantee.removeprefix("Guarantee: "), test.removeprefix("Test: "))
