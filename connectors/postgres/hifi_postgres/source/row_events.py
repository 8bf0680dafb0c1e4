"""Rows as events. Pure."""

from collections.abc import Sequence
from typing import Final

from hifi.pipe.sources.event import SourceEvent, refused
from hifi.pipe.sources.event_id import bounded_id
from hifi.record.headers import CONTENT_TYPE, Headers
from hifi_postgres.declaration import SqlSource
from hifi_postgres.source.positions import rfc3339, time_us
from hifi_postgres.source.table_row import TableRow

_MAX_KEY_BYTES: Final = 64 * 1024


class RowEvents:
    """Makes events of the rows of one source."""

    def __init__(self, source: SqlSource, name: str, max_bytes: int) -> None:
        """Make what all events have.

        Args:
            source: as the pipe declares it.
            name: of what is read.
            max_bytes: largest data of an event.
        """
        database = source.database
        self._name = name
        self._max_bytes = max_bytes
        self._headers: Headers = [
            ("ce_specversion", b"1.0"),
            ("ce_source", f"postgresql://{database.host}:{database.port}/{name}".encode()),
            (CONTENT_TYPE, b"application/json"),
            ("ce_type", source.type.encode()),
        ]

    def of(self, rows: Sequence[TableRow], positions: Sequence[int]) -> list[SourceEvent]:
        """The events of rows with their own event keys.

        Args:
            rows: that were read.
            positions: of each.
        """
        return [self.event(row, position, row.key) for row, position in zip(rows, positions, strict=True)]

    def event(self, row: TableRow, position: int, key: str | None) -> SourceEvent:
        """The event of a row; one that cannot be read is marked as refused.

        Args:
            row: as it was read.
            position: of the row.
            key: event key; None: the row's own.
        """
        row_time_us = time_us(row.sort_key[0])
        value = row.sort_key[0] if row_time_us is None else rfc3339(row_time_us)
        identifier = bounded_id("/".join([self._name, value, *row.sort_key[1:]]).encode())
        headers = [*self._headers, ("ce_id", identifier)]
        if row_time_us is not None:
            headers.append(("ce_time", value.encode()))
        key_values = row.sort_key[1:] or row.sort_key
        event = SourceEvent(position, (key or "/".join(key_values)).encode(), row.data, headers, row_time_us)
        if row.unreadable:
            return refused(event, "unreadable-row", row.unreadable)
        if row.data is None:
            detail = f"the row has {row.size} bytes as JSON; the limit is {self._max_bytes}"
            return refused(event, "too-large", detail)
        if len(event.key) > _MAX_KEY_BYTES:
            detail = f"the partition key has {len(event.key)} bytes; the limit is {_MAX_KEY_BYTES}"
            event.key = identifier
            return refused(event, "too-large", detail)
        return event
