"""What tells an event that a client sends again: its pipe, source and id, and its data, as digests. Pure."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final
from zlib import crc32

from aiokafka import ConsumerRecord

from hifi.event import REPLAY, SEQ
from hifi_normalize.idempotency.window import Given

_ENTRY: Final = struct.Struct("<QQIqq")
ENTRY_BYTES: Final = _ENTRY.size
_UUID_LENGTH: Final = 36
_VERSION_AT: Final = 14


def given(
    record: ConsumerRecord, headers: Mapping[str, bytes], pipe: str, *, declares_id: bool
) -> Given | None:
    """What to remember of an event; None: nobody can send it again on purpose.

    Args:
        record: of `raw`.
        headers: of the record, by name.
        pipe: name.
        declares_id: the pipe takes the id of plain JSON from the data, so no id of it is of hifi's making.
    """
    source, identifier = headers.get("ce_source", b""), headers.get("ce_id")
    if identifier is None or REPLAY in headers:  # what an operator lets go again is wanted again
        return None
    if not declares_id and _made(source, identifier, pipe):
        return None
    name = b"%b\0%b\0%b" % (pipe.encode(), source, identifier)
    return Given(
        int.from_bytes(blake2b(name, digest_size=8).digest(), "little"),
        int.from_bytes(blake2b(record.value or b"", digest_size=8).digest(), "little"),
        crc32(headers[SEQ]),
        record.timestamp,
        record.offset,
    )


def packed(some: Iterable[Given]) -> bytes:
    """As a record's value on the topic `ids`."""
    return b"".join([_ENTRY.pack(*one) for one in some])


def unpacked(value: bytes) -> Iterator[Given]:
    """What `packed` was given."""
    return map(Given._make, _ENTRY.iter_unpack(value))


def _made(source: bytes, identifier: bytes, pipe: str) -> bool:
    """An id that ingest drew (UUIDv7, RFC 9562) because the plain JSON had none."""
    return (
        len(identifier) == _UUID_LENGTH
        and identifier[_VERSION_AT : _VERSION_AT + 1] == b"7"
        and source == b"/v1/pipes/%b/events" % pipe.encode()
    )
