"""The fingerprint by which an event that a client sends again is recognized: digests of id and data. No I/O."""

import re
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

from aiokafka import ConsumerRecord

from hifi.record.cloudevents.timestamps import format_us
from hifi.record.headers import CE_PREFIX, CONTENT_TYPE, REPLAY, TIME, TRACEPARENT, UNMASKED
from hifi.record.identity import Identity

_ENTRY: Final = struct.Struct("<QQIqq")
_DIGESTS: Final = struct.Struct("<QQ")
_NOT_COMPARED: Final = frozenset({"ce_specversion", TRACEPARENT, "ce_tracestate"})
"""Attributes that may differ when a client sends an event again."""
_UUID_LENGTH: Final = 36
_UUID7: Final = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Fingerprint(NamedTuple):
    """Digests and offset of an event whose id was chosen by its client."""

    key: int
    """Digest of pipe, source and id, 64 bits."""
    data: int
    """Digest of data and attributes, 64 bits."""
    identity: int
    """Digest of the event's identity in hifi (`hifi_seq`), 32 bits: equal for copies written by hifi."""
    at_ms: int
    """Append time in `raw`, milliseconds since 1970 UTC."""
    offset: int
    """Offset in `raw`."""


def fingerprint(record: ConsumerRecord, event: Identity, *, declares_id: bool) -> Fingerprint | None:
    """The fingerprint of an event; None if its client cannot have sent it before, or an operator replayed it.

    Args:
        record: of `raw`.
        event: the identity that ingest gave it.
        declares_id: whether the pipe takes the id of plain JSON from the data, so that ingest generates no ids.
    """
    source, event_time, event_id = b"", b"", None
    compared_values: list[bytes] = []
    for name, value in record.headers:
        if name == "ce_id":
            event_id = value
        elif name == "ce_source":
            source = value
        elif name == TIME:
            event_time = value
        elif (compared_name := _compared_name(name)) is not None:
            compared_values.append(compared_name + value)
        elif name == REPLAY:
            return None
    if event_id is None or (
        len(event_id) == _UUID_LENGTH and not declares_id and _is_generated(source, event_id, event.pipe)
    ):
        return None
    if event_time and not (_is_plain_json(source, event.pipe) and event_time == format_us(event.accepted_us)):
        compared_values.append(event_time)
    compared_values.sort()
    compared_values.append(record.value or b"")
    key_values = b"%b\0%b\0%b" % (event.pipe.encode(), source, event_id)
    key_digest, data_digest = _DIGESTS.unpack(
        blake2b(key_values, digest_size=8).digest()
        + blake2b(b"\0".join(compared_values), digest_size=8).digest()
    )
    return Fingerprint(key_digest, data_digest, crc32(event.seq), record.timestamp, record.offset)


@lru_cache(maxsize=4096)
def _compared_name(name: str) -> bytes | None:
    """The name, with a colon, of a header whose value distinguishes events of one id; None for other headers."""
    is_compared = (name.startswith(CE_PREFIX) and name not in _NOT_COMPARED) or name in (
        CONTENT_TYPE,
        UNMASKED,
    )
    return b"%b:" % name.encode() if is_compared else None


def pack(fingerprints: Iterable[Fingerprint]) -> bytes:
    """The value of a record on the topic `ids`: 36 bytes for each fingerprint."""
    return b"".join([_ENTRY.pack(*fields) for fields in fingerprints])


def unpack(value: bytes | None) -> Iterator[Fingerprint]:
    """The fingerprints in a record of the topic `ids`.

    Raises:
        ValueError: the value is not that of such a record.
    """
    if value is None or len(value) % _ENTRY.size:
        raise ValueError(f"its size is no multiple of {_ENTRY.size} bytes")
    return map(Fingerprint._make, _ENTRY.iter_unpack(value))


def _is_generated(source: bytes, event_id: bytes, pipe: str) -> bool:
    """Whether ingest generated an id of 36 characters (UUIDv7, RFC 9562), as it does for plain JSON without an id."""
    return _UUID7.fullmatch(event_id) is not None and _is_plain_json(source, pipe)


def _is_plain_json(source: bytes, pipe: str) -> bool:
    """Whether an event was sent as plain JSON, whose time is the accepted time unless its data has a time."""
    return source == b"/v1/pipes/%b/events" % pipe.encode()
