"""Format of the objects of a source."""

from typing import NamedTuple


class RowFormat(NamedTuple):
    """The format that the pipe declares, and the limit of collect."""

    format: str
    delimiter: str
    encoding: str
    max_bytes: int
    """Largest row."""
