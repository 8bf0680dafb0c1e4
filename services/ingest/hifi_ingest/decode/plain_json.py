"""Decode plain JSON into CloudEvents: an object, an array of objects, or one object per line. Pure.

The data of an event is the slice of its object in the body, byte for byte. The `source` section of the pipe declares
the fields that give id, time and partition key.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from uuid_utils import uuid7

from hifi.event import CONTENT_TYPE, Headers
from hifi.http.problem import Problem
from hifi.pipe.json_pointer import json_pointer
from hifi.pipe.model import Source
from hifi_ingest.decode import json_slices, timestamps
from hifi_ingest.decode.attributes import JSON_TYPE, encode_text
from hifi_ingest.decode.event import DecodedEvent, InvalidEvent

JSON_LINES: Final = frozenset({b"application/x-ndjson", b"application/ndjson", b"application/jsonl"})
_IDEMPOTENCY_KEY: Final = re.compile(rb'"?([!#-~]{1,200})"?')
_UNPROCESSABLE: Final = 422
"""The JSON is valid, but not what the pipe needs (RFC 9110, 15.5.21)."""


def objects(body: bytes) -> list[bytes]:
    """Split a body that is one JSON object or an array of objects; `check_object` checks the elements.

    Raises:
        InvalidEvent: the body is not valid JSON.
    """
    json_slices.check_utf8(body)
    if body.lstrip(b" \t\r\n")[:1] == b"[":
        return json_slices.array_elements(body)
    return [json_slices.value_slice(body)]


def lines(body: bytes) -> list[bytes]:
    """Split a body into its lines, without empty ones; `check_object` checks each."""
    return [line for line in (each.strip(b" \t\r") for each in body.split(b"\n")) if line]


def check_object(element: bytes, max_depth: int, *, valid_json: bool) -> None:
    """Raises InvalidEvent if an element is not a JSON object or is nested too deeply.

    Args:
        element: slice of the body.
        max_depth: of nesting.
        valid_json: the syntax has been checked.
    """
    if not valid_json:
        json_slices.check_utf8(element)
        json_slices.value_slice(element)
    if element[:1] != b"{":
        raise InvalidEvent("an event must be a JSON object")
    json_slices.check_depth(element, max_depth)


def idempotency_key(value: bytes) -> str:
    """The value of the header Idempotency-Key, with or without the quotation marks of a structured field.

    Raises:
        Problem: 400 if it is empty, longer than 200 characters, or not printable ASCII.
    """
    match = _IDEMPOTENCY_KEY.fullmatch(value.strip())
    if match is None:
        raise Problem(
            400, "the header idempotency-key must have 1 to 200 printable ASCII characters and no spaces"
        )
    return match[1].decode()


class PlainJsonDecoder:
    """Decodes the plain JSON events of one pipe."""

    def __init__(self, pipe: str, source: Source) -> None:
        self._source = f"/v1/pipes/{pipe}/events".encode()
        self._headers: Headers = [
            ("ce_specversion", b"1.0"),
            ("ce_source", self._source),
            ("ce_type", source.type.encode()),
            (CONTENT_TYPE, JSON_TYPE),
        ]
        self._id, self._time, self._key = source.id, source.time, source.partition_key
        self._reads_data = bool(self._id or self._time or self._key)

    def decode(
        self, element: bytes, index: int, idempotency_key: str | None, accepted_us: int
    ) -> DecodedEvent:
        """Build the event of one JSON object.

        Args:
            element: slice of the object, checked.
            index: of the object in the request.
            idempotency_key: of the request.
            accepted_us: time of an event that has none, microseconds since 1970 UTC.

        Raises:
            InvalidEvent: 422, a field that the pipe declares is missing or has the wrong type.
        """
        data = json_slices.decode(element) if self._reads_data else None
        event_id = self._event_id(data, element, index, idempotency_key)
        time_us, time = self._event_time(data, accepted_us)
        headers = [*self._headers, ("ce_id", event_id), ("ce_time", time)]
        partition_key = _text_at(data, self._key) if self._key else None
        if partition_key:
            headers.append(("ce_partitionkey", partition_key))
        return DecodedEvent(self._source, event_id, partition_key or event_id, headers, element, time_us)

    def _event_id(self, data: Any, element: bytes, index: int, idempotency_key: str | None) -> bytes:
        if self._id is not None:
            event_id = _text_at(data, self._id)
            if not event_id:
                raise InvalidEvent(
                    f"the field {self._id}, which is the event id in this pipe, is missing or empty",
                    _pointer(self._id),
                    _UNPROCESSABLE,
                )
            return event_id
        if idempotency_key is not None:
            return f"{idempotency_key}-{index}-{hashlib.sha256(element).hexdigest()[:16]}".encode()
        return str(uuid7()).encode()

    def _event_time(self, data: Any, accepted_us: int) -> tuple[int, bytes]:
        value = _at(data, self._time) if self._time else None
        if value is None:
            return accepted_us, _format_us(accepted_us)
        try:
            time = value.encode("ascii")
            return timestamps.parse_us(time), time
        except (AttributeError, ValueError):
            raise InvalidEvent(
                f"the field {self._time}, which is the event time in this pipe, must be an RFC 3339 timestamp",
                _pointer(self._time or ""),
                _UNPROCESSABLE,
            ) from None


_format_us: Final = lru_cache(maxsize=8)(timestamps.format_us)


def _at(data: Any, path: str) -> Any:
    """The value at a dotted path, or None."""
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
        return encode_text(path, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
    raise InvalidEvent(f"the field {path} must be a string or an integer", _pointer(path), _UNPROCESSABLE)


def _pointer(path: str) -> str:
    return json_pointer(path.split("."))
