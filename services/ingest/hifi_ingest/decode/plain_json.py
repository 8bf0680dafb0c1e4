"""Plain JSON made into CloudEvents: an object, an array of objects, or one object a line. Pure.

The data is each object's own slice of the body, byte for byte. What a pipe declares in `source` says where id, time
and partition key come from.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from uuid_utils import uuid7

from hifi.event import CONTENT_TYPE, Headers
from hifi.pipe.model import Source
from hifi_ingest.decode import json_slices, timestamps
from hifi_ingest.decode.attributes import JSON_TYPE, Incoming, text
from hifi_ingest.http.answers import Flaw, Problem

JSON_LINES: Final = frozenset({b"application/x-ndjson", b"application/ndjson", b"application/jsonl"})
_IDEMPOTENCY_KEY: Final = re.compile(rb'"?([!#-~]{1,200})"?')
_UNUSABLE: Final = 422
"""The JSON is fine and the pipe cannot use it (RFC 9110, 15.5.21)."""


def objects(body: bytes) -> list[bytes]:
    """The objects of a body that is one JSON object or an array of some.

    Raises:
        Flaw: it is neither; elements that are no objects are left to `check`.
    """
    json_slices.utf8(body)
    if body.lstrip(b" \t\r\n")[:1] == b"[":
        return json_slices.array(body)
    return [json_slices.one(body)]


def lines(body: bytes) -> list[bytes]:
    """The lines of a body, without empty ones; they are checked by `check`."""
    return [line for line in (each.strip(b" \t\r") for each in body.split(b"\n")) if line]


def check(element: bytes, depth: int, *, checked: bool) -> None:
    """Raises Flaw: the element is no JSON object, or is nested too deeply. `checked`: its syntax was."""
    if not checked:
        json_slices.utf8(element)
        json_slices.one(element)
    if element[:1] != b"{":
        raise Flaw("an event must be a JSON object")
    json_slices.shallow(element, depth)


def idempotency_key(value: bytes) -> str:
    """The header Idempotency-Key, with or without the quotes of a structured field.

    Raises:
        Problem: it is empty, longer than 200 characters, or not printable ASCII.
    """
    match = _IDEMPOTENCY_KEY.fullmatch(value.strip())
    if match is None:
        raise Problem(
            400, "the header idempotency-key must be 1 to 200 printable ASCII characters, no spaces"
        )
    return match[1].decode()


class PlainSource:
    """Makes events of the plain JSON that a pipe takes."""

    def __init__(self, pipe: str, source: Source) -> None:
        self._source = f"/v1/pipes/{pipe}/events".encode()
        self._headers: Headers = [
            ("ce_specversion", b"1.0"),
            ("ce_source", self._source),
            ("ce_type", source.type.encode()),
            (CONTENT_TYPE, JSON_TYPE),
        ]
        self._id, self._time, self._key = source.id, source.time, source.partition_key
        self._reads = bool(self._id or self._time or self._key)

    def event(self, element: bytes, index: int, key: str | None, accepted_us: int) -> Incoming:
        """The event of one JSON object.

        Args:
            element: the object, checked.
            index: its place in the request.
            key: the request's Idempotency-Key.
            accepted_us: its time if it has none of its own, microseconds since 1970 UTC.

        Raises:
            Flaw: what the pipe declares is missing in it or of the wrong type.
        """
        data = json_slices.value(element) if self._reads else None
        identifier = self._identifier(data, element, index, key)
        time_us, time = self._when(data, accepted_us)
        headers = [*self._headers, ("ce_id", identifier), ("ce_time", time)]
        partition_key = _text_at(data, self._key) if self._key else None
        if partition_key:
            headers.append(("ce_partitionkey", partition_key))
        return Incoming(self._source, identifier, partition_key or identifier, headers, element, time_us)

    def _identifier(self, data: Any, element: bytes, index: int, key: str | None) -> bytes:
        if self._id is not None:
            identifier = _text_at(data, self._id)
            if not identifier:
                raise Flaw(
                    f"the pipe takes the event's id from {self._id}, which is missing",
                    _pointer(self._id),
                    _UNUSABLE,
                )
            return identifier
        if key is not None:
            return f"{key}-{index}-{hashlib.sha256(element).hexdigest()[:16]}".encode()
        return str(uuid7()).encode()

    def _when(self, data: Any, accepted_us: int) -> tuple[int, bytes]:
        value = _at(data, self._time) if self._time else None
        if value is None:
            return accepted_us, _written(accepted_us)
        try:
            time = value.encode("ascii")
            return timestamps.read_us(time), time
        except (AttributeError, ValueError):
            raise Flaw(
                f"the pipe takes the event's time from {self._time}, which must be a time of RFC 3339",
                _pointer(self._time or ""),
                _UNUSABLE,
            ) from None


_written: Final = lru_cache(maxsize=8)(timestamps.write)


def _at(data: Any, path: str) -> Any:
    """The value at a path with dots, None when there is none."""
    for part in path.split("."):
        if not isinstance(data, Mapping):
            return None
        data = data.get(part)
    return data


def _text_at(data: Any, path: str) -> bytes | None:
    value = _at(data, path)
    if value is None:
        return None
    if isinstance(value, str):
        return text(path, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
    raise Flaw(f"the pipe uses {path}, which must be a string or a whole number", _pointer(path), _UNUSABLE)


def _pointer(path: str) -> str:
    return "/" + path.replace("~", "~0").replace("/", "~1").replace(".", "/")
