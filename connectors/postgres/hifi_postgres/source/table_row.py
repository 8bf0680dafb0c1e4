"""A row as it was read from a table. Pure."""

from collections.abc import Sequence
from typing import Any

from hifi_postgres.source.progress import SortKey


class TableRow:
    """A row that was read.

    Attributes:
        sort_key: of the row.
        key: value of the declared partition key; None: there is none.
        data: all columns as JSON; None: too large.
        size: bytes of the data.
        unreadable: why the row cannot be read, one sentence without its values; empty: it can.
    """

    __slots__ = ("data", "key", "size", "sort_key", "unreadable")

    def __init__(
        self, sort_key: SortKey, key: str | None, data: bytes | None, size: int, unreadable: str = ""
    ) -> None:
        self.sort_key = sort_key
        self.key = key
        self.data = data
        self.size = size
        self.unreadable = unreadable


def table_row(values: Sequence[Any]) -> TableRow:
    """The row of a result of `RowStatements`: sort key, key, data as text and its size."""
    data = values[-2]
    return TableRow(tuple(values[:-3]), values[-3], None if data is None else data.encode(), values[-1])
