"""CloudEvents 1.0 over HTTP: binary, structured and batched content mode, read. Pure.

HTTP protocol binding 1.0.2 sections 3.1 to 3.3, JSON event format 1.0.2. The data stays byte for byte: the body in
binary mode, the slice of the `data` member otherwise.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from hifi.http.media_type import is_json
from hifi_ingest.decode import json_slices
from hifi_ingest.decode.attributes import JSON_TYPE, Incoming, assemble, text
from hifi_ingest.http.answers import Flaw

STRUCTURED: Final = b"application/cloudevents+json"
BATCHED: Final = b"application/cloudevents-batch+json"
PREFIX: Final = b"ce-"

_QUOTE: Final = ord('"')
_DATA: Final = frozenset({"data", "data_base64"})
_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,9})")
_STRINGS: Final = frozenset(
    {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema"}
)
_READY: Final = re.compile(rb"[!#-$&-~](?:[ !#-$&-~]*[!#-$&-~])?")
"""A header's value that needs no decoding: printable ASCII without quote and percent sign."""


def binary(headers: Iterable[tuple[bytes, bytes]], body: bytes, depth: int) -> Incoming:
    """The event of a request in binary mode.

    Args:
        headers: of the request, names in lower case.
        body: the data.
        depth: bound on the nesting of data that declares itself JSON.

    Raises:
        Flaw: it is none.
    """
    values: dict[str, bytes] = {}
    for name, value in headers:
        if name.startswith(PREFIX):
            attribute = name[3:].decode("latin-1")
            if attribute in values or attribute == "datacontenttype":
                raise Flaw(f"the header {name.decode('latin-1')[:40]} may not be there (again)")
            values[attribute] = value if _READY.fullmatch(value) else _header_text(attribute, value)
        elif name == b"content-type":
            if "datacontenttype" in values:
                raise Flaw("there is more than one header content-type")
            values["datacontenttype"] = value
    content_type = values.get("datacontenttype")
    if content_type is not None and body and is_json(content_type):
        json_slices.utf8(body)
        json_slices.one(body)
        json_slices.shallow(body, depth)
    return assemble(values, body)


def _header_text(attribute: str, value: bytes) -> bytes:
    """Undo quoting (RFC 9110, 5.6.4), then percent-encoding, as section 3.1.3.2 of the binding wants."""
    if len(value) >= 2 and value[:1] == value[-1:] == b'"':
        value = re.sub(rb"\\(.)", rb"\1", value[1:-1], flags=re.DOTALL)
    try:
        return text(attribute, unquote_to_bytes(value).decode())
    except UnicodeDecodeError:
        raise Flaw(f"the header ce-{attribute[:40]} is not UTF-8") from None


def structured(body: bytes, depth: int) -> Incoming:
    """The event of a request in structured mode, JSON format.

    Raises:
        Flaw: it is none.
    """
    json_slices.utf8(body)
    return event(json_slices.members(body), depth, clean=is_clean(body))


def batched(body: bytes) -> list[json_slices.Members]:
    """The members of each event of a request in batched mode, for `event`.

    Raises:
        Flaw: the body as a whole is no array of objects.
    """
    json_slices.utf8(body)
    return json_slices.array_of_members(body)


def is_clean(body: bytes) -> bool:
    """No string in it needs decoding, and none can hold a forbidden character."""
    return body.isascii() and b"\\" not in body and b"\x7f" not in body


def event(members: json_slices.Members, depth: int, *, clean: bool) -> Incoming:
    """The event of a JSON object's members.

    Args:
        members: name to slice.
        depth: bound on the nesting of data that is JSON.
        clean: `is_clean` of the body that the slices are from.

    Raises:
        Flaw: it is none.
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
    return assemble(values, _data(members, values, depth))


def _data(members: json_slices.Members, values: dict[str, bytes], depth: int) -> bytes:
    """The data of an event; where it is JSON by default, that is set among the attributes."""
    encoded = members.get("data_base64")
    data = members.get("data")
    if encoded is not None and bytes(encoded) != b"null":
        if data is not None:
            raise Flaw("data and data_base64 exclude each other", "/data_base64")
        return _base64(bytes(encoded))
    if data is None:
        return b""
    content_type = values.setdefault("datacontenttype", JSON_TYPE)
    if not is_json(content_type):
        return _string_data(bytes(data))
    text_ = bytes(data)
    json_slices.shallow(text_, depth)
    return text_


def _value(name: str, slice_: bytes) -> bytes | None:
    """The canonical text of an attribute's JSON value; None: the attribute is not set."""
    first = slice_[:1]
    if first == b'"':
        inner = slice_[1:-1]
        return inner if json_slices.is_plain(inner) else text(name, json_slices.value(slice_))
    if slice_ == b"null":
        return None
    if name not in _STRINGS:
        if slice_ in (b"true", b"false"):
            return slice_
        if _INTEGER.fullmatch(slice_) and -(2**31) <= int(slice_) < 2**31:
            return b"%d" % int(slice_)
        raise Flaw("an extension is a string, a boolean or a 32-bit integer", _pointer(name))
    raise Flaw(f"{name} must be a string", _pointer(name))


def _base64(slice_: bytes) -> bytes:
    content = json_slices.value(slice_)
    try:
        return base64.b64decode(content, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Flaw("data_base64 must be a string in base64", "/data_base64") from None


def _string_data(slice_: bytes) -> bytes:
    """Data of a type other than JSON is a JSON string that holds it (JSON event format, 3.1)."""
    content: Any = json_slices.value(slice_)
    if not isinstance(content, str):
        raise Flaw("data must be a string where datacontenttype is not JSON; else use data_base64", "/data")
    try:
        return content.encode()
    except UnicodeEncodeError:
        raise Flaw("data is not Unicode text", "/data") from None


def _pointer(name: str) -> str:
    return "/" + name[:40].replace("~", "~0").replace("/", "~1")
