"""Rows of objects as events. Pure."""

from collections.abc import Sequence
from typing import Final

from hifi.pipe.sources.event import SourceEvent, refused
from hifi.pipe.sources.event_id import bounded_id
from hifi.pipe.sources.partition_key import partition_key
from hifi.pipe.sources.timestamps import rfc3339_or_none
from hifi.record.cloudevents.attributes import MAX_ID_BYTES
from hifi.record.headers import CONTENT_TYPE, Headers
from hifi.runtime.errors import Rejected
from hifi_objects.declaration import ObjectsSource
from hifi_objects.source.catalog import KnownObject
from hifi_objects.source.rows.row import ObjectRow

_MAX_NAME_BYTES: Final = MAX_ID_BYTES - len("/4294967295")
"""Of an object in ids, behind which the number of a row stands."""


class ObjectRowEvents:
    """Makes events of the rows of one source."""

    def __init__(self, source: ObjectsSource, url: str) -> None:
        """Make what all events have.

        Args:
            source: as the pipe declares it.
            url: of the folder or bucket.
        """
        self._partition_key = None if source.partition_key is None else source.partition_key.split(".")
        self._headers: Headers = [
            ("ce_specversion", b"1.0"),
            ("ce_source", url.encode()),
            (CONTENT_TYPE, b"application/json"),
            ("ce_type", source.type.encode()),
        ]

    def of(self, known_object: KnownObject, rows: Sequence[ObjectRow]) -> list[SourceEvent]:
        """The events of rows of an object; those that cannot be read are marked as refused."""
        version = known_object.object
        name = bounded_id(f"{version.shown_path}/{version.version}".encode(), _MAX_NAME_BYTES)
        headers, modified_us = self._headers, None
        if (time := rfc3339_or_none(version.modified_us // 1000)) is not None:
            headers, modified_us = [*headers, ("ce_time", time)], version.modified_us
        position_before = known_object.position(0)
        events = []
        for row in rows:
            identifier = b"%b/%d" % (name, row.number)
            event = SourceEvent(
                position_before + row.number,
                identifier,
                row.data,
                [*headers, ("ce_id", identifier)],
                modified_us,
            )
            events.append(self._checked(event, row))
        return events

    def _checked(self, event: SourceEvent, row: ObjectRow) -> SourceEvent:
        if row.reason:
            return refused(event, row.reason, row.detail)
        if self._partition_key is None or row.data is None:
            return event
        try:
            event.key = partition_key(row.data, self._partition_key) or event.key
        except Rejected as rejection:
            return refused(event, rejection.reason, rejection.detail)
        return event
