"""Decode plain JSON into CloudEvents: an object, an array of objects, or one object per line. Pure.

The data of an event is the slice of its object in the body, byte for byte. The `source` section of the pipe declares
the fields that give id, time and partition key.
"""

import hmac
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Raw
from uuid_utils import uuid7

from hifi.pipe.source import HttpSource
from hifi.record.cloudevents import json_slices, timestamps
from hifi.record.cloudevents.attributes import (
    JSON_TYPE,
    MAX_ATTRIBUTE_BYTES,
    MAX_ID_BYTES,
    encode_text,
)
from hifi.record.cloudevents.event import DecodedEvent, DecodeLimits, InvalidEvent, check_size
from hifi.record.headers import CONTENT_TYPE, Headers
from hifi.runtime.http.problem import Problem
from hifi.runtime.json_pointer import json_pointer

JSON_LINES: Final = frozenset({b"application/x-ndjson", b"application/ndjson", b"application/jsonl"})
_IDEMPOTENCY_KEY: Final = re.compile(rb'"?([!#-~]{1,200})"?')
_LINE: Final = re.compile(rb"[^ \t\r\n][^\n]*")
_INTEGER: Final = re.compile(rb"-?[0-9]+")
_CONTAINERS: Final = (b"{", b"[")
_UNPROCESSABLE: Final = 422
"""The JSON is valid, but not what the pipe needs (RFC 9110, 15.5.21)."""


def objects(body: bytes) -> list[bytes]:
    """Split a body that is one JSON object or an array of objects; `check_object` checks the elements.

    Raises:
        InvalidEvent: the body is not valid JSON.
    """
    json_slices.check_utf8(body)
    if is_array(body):
        return json_slices.array_elements(body)
    return [json_slices.value_slice(body)]


def is_array(body: bytes) -> bool:
    """Whether a body is an array, if it is JSON."""
    return body.lstrip(b" \t\r\n")[:1] == b"["


def lines(body: bytes, max_lines: int) -> list[bytes]:
    """Split a body into its lines, without empty ones; `check_object` checks each.

    Args:
        body: of the request.
        max_lines: largest number of lines of a request; one more is returned if there are more.
    """
    return [match[0].rstrip(b" \t\r") for match in islice(_LINE.finditer(body), max_lines + 1)]


def line_numbers(body: bytes, indexes: Iterable[int]) -> dict[int, int]:
    """The numbers of lines in the body, from 1.

    Args:
        body: of the request.
        indexes: of the lines, in the list that `lines` returns.

    Returns:
        Index of a line to its number in the body.
    """
    index_set = set(indexes)
    numbers_by_index: dict[int, int] = {}
    line_number, counted_bytes = 1, 0
    for index, match in enumerate(islice(_LINE.finditer(body), max(index_set, default=-1) + 1)):
        line_number += body.count(b"\n", counted_bytes, match.start())
        counted_bytes = match.start()
        if index in index_set:
            numbers_by_index[index] = line_number
    return numbers_by_index


def check_object(element: bytes, limits: DecodeLimits, *, valid_json: bool) -> None:
    """Raises InvalidEvent if an element is not a JSON object, is too large or is nested too deeply.

    Args:
        element: slice of the body.
        limits: of the event.
        valid_json: whether the syntax has been checked.
    """
    if not valid_json:
        check_size(len(element), limits)
        json_slices.check_utf8(element)
        json_slices.value_slice(element)
    if element[:1] != b"{":
        raise InvalidEvent("an event must be a JSON object")
    json_slices.check_data(element, limits)


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

    def __init__(self, pipe: str, source: HttpSource) -> None:
        self._source = f"/v1/pipes/{pipe}/events".encode()
        self._headers: Headers = [
            ("ce_specversion", b"1.0"),
            ("ce_source", self._source),
            ("ce_type", source.type.encode()),
            (CONTENT_TYPE, JSON_TYPE),
        ]
        self._masks_data = source.mask is not None
        self._id = _DeclaredField.of(source.id)
        self._time = _DeclaredField.of(source.time)
        self._key = _DeclaredField.of(source.partition_key)

    def decode(
        self,
        element: bytes,
        index: int,
        idempotency_key: str | None,
        accepted_us: int,
        write_key: bytes = b"",
    ) -> DecodedEvent:
        """Build the event of one JSON object.

        Args:
            element: slice of the object, checked.
            index: of the object in the request.
            idempotency_key: of the request.
            accepted_us: time of an event that has none, microseconds since 1970 UTC.
            write_key: of the request.

        Raises:
            InvalidEvent: 422, a field that the pipe declares is missing or has the wrong type.
        """
        event_id = self._event_id(element, index, idempotency_key, write_key)
        time_us, time = self._event_time(element, accepted_us)
        headers = [*self._headers, ("ce_id", event_id), ("ce_time", time)]
        partition_key = self._key.text(element, MAX_ATTRIBUTE_BYTES) if self._key else None
        if partition_key:
            headers.append(("ce_partitionkey", partition_key))
        return DecodedEvent(self._source, event_id, partition_key or event_id, headers, element, time_us)

    def _event_id(self, element: bytes, index: int, idempotency_key: str | None, write_key: bytes) -> bytes:
        if self._id is not None:
            event_id = self._id.text(element, MAX_ID_BYTES)
            if not event_id:
                raise self._id.invalid("which is the event id in this pipe, is missing or empty")
            return event_id
        if idempotency_key is not None:
            # Without a key, the digest would reveal masked values.
            digest = hmac.digest(write_key if self._masks_data else b"", element, "sha256")
            return f"{idempotency_key}-{index}-{digest.hex()[:16]}".encode()
        return str(uuid7()).encode()

    def _event_time(self, element: bytes, accepted_us: int) -> tuple[int, bytes]:
        value = self._time.value(element) if self._time else None
        if self._time is None or value is None:
            return accepted_us, _format_us(accepted_us)
        try:
            return timestamps.parse(value.encode("ascii"))
        except (AttributeError, ValueError):
            raise self._time.invalid(
                "which is the event time in this pipe, must be an RFC 3339 timestamp"
            ) from None


_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
"""Characters that JSON escapes in the name of a member."""
_format_us: Final = lru_cache(maxsize=8)(timestamps.format_us)


class _DeclaredField:
    """A field that a pipe declares, read without decoding the rest of the object."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._members = [_member_reader(name) for name in path.split(".")]

    @classmethod
    def of(cls, path: str | None) -> "_DeclaredField | None":
        """The field at a dotted path, if there is one."""
        return None if path is None else cls(path)

    def value(self, element: bytes) -> Any:
        """The scalar at the path; None if there is none, and an empty dict for an object or array."""
        return self._decoded(self._slice(element))

    def _slice(self, element: bytes) -> bytes:
        """The JSON at the path; empty if there is none."""
        json_slice = element
        for member in self._members:
            if json_slice[:1] != b"{":
                return b""
            json_slice = member(json_slice)
        return json_slice

    def _decoded(self, json_slice: bytes) -> Any:
        """A scalar; None if there is none, and an empty dict for an object or array."""
        if not json_slice:
            return None
        return {} if json_slice[:1] in _CONTAINERS else json_slices.decode(json_slice)

    def text(self, element: bytes, max_bytes: int) -> bytes | None:
        """The string at the path, or the digits of the integer; None if there is neither.

        Args:
            element: slice of the object.
            max_bytes: largest size of the text.

        Raises:
            InvalidEvent: 422, the value has another type or is too long.
        """
        json_slice = self._slice(element)
        if _INTEGER.fullmatch(json_slice):
            text = json_slice if json_slice != b"-0" else b"0"
        else:
            value = self._decoded(json_slice)
            if value is None:
                return None
            if not isinstance(value, str):
                raise self.invalid("must be a string or an integer")
            text = encode_text(self._path, value)
        if len(text) > max_bytes:
            raise self.invalid(f"has {len(text)} bytes; the limit is {max_bytes}")
        return text

    def invalid(self, problem: str) -> InvalidEvent:
        """422 that names the field."""
        separator = ", " if problem.startswith("which") else " "
        return InvalidEvent(
            f"the field {self._path}{separator}{problem}", json_pointer(self._path.split(".")), _UNPROCESSABLE
        )


def _member_reader(name: str) -> Callable[[bytes], bytes]:
    """A function that returns the slice of one member of an object, and skips the others; empty: it has none."""
    if _ESCAPED.search(name):  # no field of a struct can have the name
        read_all = msgspec.json.Decoder(dict[str, Raw]).decode
        return lambda element: bytes(read_all(element).get(name, b""))
    member_type = msgspec.defstruct("Member", [("value", Raw, Raw())], rename={"value": name}, gc=False)
    read: Callable[[bytes], Any] = msgspec.json.Decoder(member_type).decode
    return lambda element: bytes(read(element).value)
