"""How the objects of a source are to be read."""

from typing import NamedTuple


class RowFormat(NamedTuple):
    """What the pipe declares, and the limit of collect."""

    format: str
    delimiter: str
    encoding: str
    max_bytes: int
    """Largest row."""
