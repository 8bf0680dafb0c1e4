"""Rows of objects as events. Pure."""

from typing import Any, Final

from hifi.event import CONTENT_TYPE, Headers
from hifi.pipe.sources.objects import ObjectsSource
from hifi_collect.objects.catalog import KnownObject
from hifi_collect.objects.rows.row import ObjectRow
from hifi_collect.source_event import SourceEvent, refused
from hifi_collect.timestamps import rfc3339

_MAX_KEY_BYTES: Final = 64 * 1024


class ObjectRowEvents:
    """Makes events of the rows of one source."""

    def __init__(self, source: ObjectsSource, url: str, max_bytes: int) -> None:
        """Make what all events have.

        Args:
            source: as the pipe declares it.
            url: of the folder or bucket.
            max_bytes: largest data of an event.
        """
        self._partition_key = None if source.partition_key is None else source.partition_key.split(".")
        self._max_bytes = max_bytes
        self._headers: Headers = [
            ("ce_specversion", b"1.0"),
            ("ce_source", url.encode()),
            (CONTENT_TYPE, b"application/json"),
            ("ce_type", source.type.encode()),
        ]

    def __call__(self, known: KnownObject, row: ObjectRow) -> SourceEvent:
        """The event of a row; one that cannot be read is marked as refused."""
        version = known.object
        identifier = f"{version.path}/{version.version}/{row.number}".encode(errors="surrogateescape")
        headers = [
            *self._headers,
            ("ce_id", identifier),
            ("ce_time", rfc3339(version.modified_us // 1000)),
        ]
        event = SourceEvent(known.position(row.number), identifier, row.data, headers, version.modified_us)
        if row.reason:
            return refused(event, row.reason, row.detail)
        if len(row.data or b"") > self._max_bytes:
            detail = f"the row has {len(row.data or b'')} bytes as JSON; the limit is {self._max_bytes}"
            return refused(event._replace(data=None), "too-large", detail)
        return self._with_key(event, row.fields)

    def _with_key(self, event: SourceEvent, data: dict[str, Any]) -> SourceEvent:
        value: Any = None
        if self._partition_key is not None:
            value = data
            for name in self._partition_key:
                value = value.get(name) if isinstance(value, dict) else None
        if value is None or value == "":
            return event
        if isinstance(value, bool) or not isinstance(value, str | int):
            path = ".".join(self._partition_key or ())
            return refused(event, "partition-key", f"the field {path} must be a string or an integer")
        key = str(value).encode(errors="surrogateescape")
        if len(key) > _MAX_KEY_BYTES:
            detail = f"the partition key has {len(key)} bytes; the limit is {_MAX_KEY_BYTES}"
            return refused(event, "too-large", detail)
        return event._replace(key=key)
