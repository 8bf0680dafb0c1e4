"""A record to write to a topic. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from hifi.record.headers import Headers


class Record(NamedTuple):
    """A record to write: key, value (None: an event without its data, such as a filtered one) and headers."""

    key: bytes | None
    value: bytes | None
    headers: Headers


_LENGTHS_BYTES: Final = 4
"""Of the lengths of a header's name and value; where they take more, it is little of the whole."""
_NEW: Final = tuple.__new__


def new_record(key: bytes | None, value: bytes | None, headers: Headers) -> Record:
    """Make a record in a third of the time that `Record(...)` takes, whose constructor is interpreted."""
    return _NEW(Record, (key, value, headers))


def sizes_bytes(records: Sequence[Record]) -> list[int]:
    """Bytes of key, value and headers of each record, without what Kafka's format adds once for a record."""
    header_sizes = [
        sum(
            [
                (len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass")))
                + len(value)
                + _LENGTHS_BYTES
                for name, value in record.headers
            ]
        )
        for record in records
    ]
    return [
        len(record.key or b"") + len(record.value or b"") + header_size
        for record, header_size in zip(records, header_sizes)  # noqa: B905 - `strict` takes time here
    ]
