"""Decode CloudEvents 1.0: binary, structured and batched content mode. Pure.

HTTP protocol binding 1.0.2, sections 3.1 to 3.3; Kafka protocol binding 1.0.2, section 3; JSON event format 1.0.2. Data
is kept byte for byte: the body in binary mode, the slice of the `data` member otherwise.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from hifi.record.cloudevents import json_slices
from hifi.record.cloudevents.attributes import BYTES_TYPE, JSON_TYPE, assemble, encode_text
from hifi.record.cloudevents.event import DecodedEvent, DecodeLimits, InvalidEvent, check_size
from hifi.runtime.http.media_type import is_json, is_utf8
from hifi.runtime.json_pointer import json_pointer

STRUCTURED: Final = b"application/cloudevents+json"
BATCHED: Final = b"application/cloudevents-batch+json"
PREFIX: Final = b"ce-"
KAFKA_PREFIX: Final = "ce_"
KAFKA_CONTENT_TYPE: Final = "content-type"

_QUOTE: Final = ord('"')
_DATA: Final = frozenset({"data", "data_base64"})
_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,9})")
_STRING_ATTRIBUTES: Final = frozenset(
    {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema"}
)
_LITERAL: Final = re.compile(rb"[!#-$&-~](?:[ !#-$&-~]*[!#-$&-~])?")
"""A header value that needs no decoding: printable ASCII without quotation mark and percent sign."""


def binary(headers: Iterable[tuple[bytes, bytes]], body: bytes, limits: DecodeLimits) -> DecodedEvent:
    """Decode the event of a request in binary mode.

    Args:
        headers: of the request, names in lower case.
        body: data of the event.
        limits: of the event.

    Raises:
        InvalidEvent: the request is not a valid event.
    """
    check_size(len(body), limits)
    values: dict[str, bytes] = {}
    for name, value in headers:
        if name.startswith(PREFIX):
            attribute = name[3:].decode("latin-1")
            if attribute in values or attribute == "datacontenttype":
                raise InvalidEvent(f"the header {name.decode('latin-1')[:40]} is repeated or not allowed")
            values[attribute] = value if _LITERAL.fullmatch(value) else _header_text(attribute, value)
        elif name == b"content-type":
            if "datacontenttype" in values:
                raise InvalidEvent("the header content-type is repeated")
            values["datacontenttype"] = value
    return _assemble(values, body, limits)


def kafka_binary(headers: Iterable[tuple[str, bytes]], value: bytes, limits: DecodeLimits) -> DecodedEvent:
    """Decode the event of a Kafka record in binary mode, whose headers have the attributes as UTF-8.

    Args:
        headers: of the record.
        value: data of the event.
        limits: of the event.

    Raises:
        InvalidEvent: the record is not a valid event.
    """
    check_size(len(value), limits)
    values: dict[str, bytes] = {}
    for name, text in headers:
        attribute = name[len(KAFKA_PREFIX) :] if name.startswith(KAFKA_PREFIX) else ""
        if name == KAFKA_CONTENT_TYPE:
            attribute = "datacontenttype"
        elif attribute == "datacontenttype":
            raise InvalidEvent(f"the header {name} is not allowed: the header {KAFKA_CONTENT_TYPE} has it")
        if not attribute:
            continue
        if attribute in values:
            raise InvalidEvent(f"the attribute {attribute[:40]} is repeated")
        try:
            values[attribute] = encode_text(attribute, text.decode())
        except UnicodeDecodeError:
            raise InvalidEvent(f"the header {name[:40]} is not UTF-8") from None
    return _assemble(values, value, limits)


def _assemble(values: dict[str, bytes], body: bytes, limits: DecodeLimits) -> DecodedEvent:
    """The event of binary mode."""
    return assemble(values, _checked(body, values, limits))


def _checked(data: bytes, values: dict[str, bytes], limits: DecodeLimits) -> bytes:
    """Data that was sent as bytes, without a byte order mark if it is JSON.

    Data whose type is declared as JSON must be valid. Data without a declared type gets one in `values`, so that no
    service takes what is not JSON for it.

    Raises:
        InvalidEvent: the data is declared to be JSON and is not.
    """
    content_type = values.get("datacontenttype")
    if not data or not (content_type is None or is_json(content_type)):
        return data
    text = json_slices.without_bom(data)
    try:
        json_slices.check_utf8(text)
        json_slices.value_slice(text)
    except InvalidEvent:
        if content_type is not None:
            raise
        values["datacontenttype"] = BYTES_TYPE
        return data
    json_slices.check_data(text, limits)
    values.setdefault("datacontenttype", JSON_TYPE)
    return text


def _header_text(attribute: str, value: bytes) -> bytes:
    """Undo quoting (RFC 9110, 5.6.4), then percent-encoding (HTTP protocol binding, 3.1.3.2)."""
    if len(value) >= 2 and value[:1] == value[-1:] == b'"':
        value = re.sub(rb"\\(.)", rb"\1", value[1:-1], flags=re.DOTALL)
    try:
        return encode_text(attribute, unquote_to_bytes(value).decode())
    except UnicodeDecodeError:
        raise InvalidEvent(f"the header ce-{attribute[:40]} is not UTF-8") from None


def structured(body: bytes, limits: DecodeLimits) -> DecodedEvent:
    """Decode the event of a request in structured mode, JSON format.

    Raises:
        InvalidEvent: the body is not a valid event.
    """
    json_slices.check_utf8(body)
    return event(json_slices.object_members(body), limits, clean=is_clean(body))


def batched(body: bytes) -> list[json_slices.Members]:
    """Split the body of a request in batched mode into its events; pass each to `event`.

    Raises:
        InvalidEvent: the body is not an array of objects.
    """
    json_slices.check_utf8(body)
    return json_slices.array_of_object_members(body)


def is_clean(body: bytes) -> bool:
    """Whether no string of a body needs decoding or can contain a forbidden character."""
    return body.isascii() and b"\\" not in body and b"\x7f" not in body


def event(members: json_slices.Members, limits: DecodeLimits, *, clean: bool) -> DecodedEvent:
    """Decode an event from the members of its JSON object.

    Args:
        members: name to slice of the body.
        limits: of the event.
        clean: `is_clean` of the whole body, which saves the check of each string.

    Raises:
        InvalidEvent: the object is not a valid event.
    """
    values: dict[str, bytes] = {}
    for name, raw in members.items():
        slice_ = bytes(raw)
        if name in _DATA:
            continue
        if clean and slice_[0] == _QUOTE:
            values[name] = slice_[1:-1]
        else:
            value = _value(name, slice_)
            if value is not None:
                values[name] = value
    return assemble(values, _data(members, values, limits))


def _data(members: json_slices.Members, values: dict[str, bytes], limits: DecodeLimits) -> bytes:
    """The data of an event. Sets `datacontenttype` in `values` if data has no declared type."""
    base64_slice = members.get("data_base64")
    data = members.get("data")
    if base64_slice is not None and bytes(base64_slice) != b"null":
        if data is not None:
            raise InvalidEvent("an event may have either data or data_base64", "/data_base64")
        content = _base64(bytes(base64_slice))
        check_size(len(content), limits)
        return _checked(content, values, limits)
    if data is None:
        return b""
    content_type = values.setdefault("datacontenttype", JSON_TYPE)
    if not is_utf8(content_type):  # a receiver would read the bytes as other text
        raise InvalidEvent(
            "data is delivered as UTF-8, and datacontenttype names another charset; send data_base64, or charset=utf-8",
            "/data",
        )
    if not is_json(content_type):
        return _string_data(bytes(data))
    data_slice = bytes(data)
    json_slices.check_data(data_slice, limits)
    return data_slice


def _value(name: str, slice_: bytes) -> bytes | None:
    """The canonical text of an attribute's JSON value; None if the attribute is null, which means absent."""
    first_byte = slice_[:1]
    if first_byte == b'"':
        string_content = slice_[1:-1]
        return (
            string_content
            if json_slices.is_unescaped(string_content)
            else encode_text(name, json_slices.decode(slice_))
        )
    if slice_ == b"null":
        return None
    if name not in _STRING_ATTRIBUTES:
        if slice_ in (b"true", b"false"):
            return slice_
        if _INTEGER.fullmatch(slice_) and -(2**31) <= int(slice_) < 2**31:
            return b"%d" % int(slice_)
        raise InvalidEvent(
            "an extension attribute must be a string, a boolean or a 32-bit integer",
            json_pointer([name[:40]]),
        )
    raise InvalidEvent(f"{name} must be a string", json_pointer([name[:40]]))


def _base64(slice_: bytes) -> bytes:
    content = json_slices.decode(slice_)
    try:
        return base64.b64decode(content, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InvalidEvent("data_base64 must be a base64 string", "/data_base64") from None


def _string_data(slice_: bytes) -> bytes:
    """Data that is not JSON is the content of a JSON string (JSON event format, 3.1)."""
    content: Any = json_slices.decode(slice_)
    if not isinstance(content, str):
        raise InvalidEvent(
            "data must be a string if datacontenttype is not JSON; send other data as data_base64", "/data"
        )
    try:
        return content.encode()
    except UnicodeEncodeError:
        raise InvalidEvent("data is not Unicode text", "/data") from None
