"""A JSON object that is decoded only where it is read or changed. Pure.

Untouched parts stay slices of the original text, so numbers keep their digits, objects their order and strings their
escapes, and nothing is encoded needlessly. An object that is opened becomes a dict of slices, and so on inwards.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw

from hifi.runtime.errors import Rejected
from hifi.runtime.json_pointer import json_pointer

LazyObject = dict[str, Any]
"""Member name to a slice (Raw), an opened object (dict) or a new value."""
KeyPath = tuple[str, ...]

MISSING: Final = object()
NULL_SLICE: Final = Raw(b"null")

_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_ARRAY: Final = msgspec.json.Decoder(list[Raw])
_ANY: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()


def key_path(text: str) -> KeyPath:
    """The keys of a dotted path: `address.city` is `("address", "city")`."""
    return tuple(text.split("."))


def decode(data: bytes) -> Any:
    """Decode a whole JSON text.

    Raises:
        Rejected: `not-json`.
    """
    return _decode_utf8(_ANY, data)


def open_object(data: bytes) -> LazyObject:
    """Open a JSON text that is an object.

    Raises:
        Rejected: `not-json` or `not-an-object`.
    """
    if data.lstrip(b" \t\r\n")[:1] != b"{":
        _decode_utf8(_ANY, data)
        raise Rejected("not-an-object", "the data is JSON, but not an object")
    members: LazyObject = _decode_utf8(_OBJECT, data)
    return members


def encode(value: Any) -> bytes:
    """The JSON text of an opened object or any other value."""
    return _ENCODER.encode(value)


def get(root: LazyObject, path: KeyPath) -> Any:
    """The slice, opened object or new value at a path; MISSING if there is none."""
    parent = root if len(path) == 1 else _parent(root, path)
    return MISSING if parent is None else parent.get(path[-1], MISSING)


def put(root: LazyObject, path: KeyPath, value: Any) -> None:
    """Set the value at a path; missing objects on the way are created.

    Raises:
        Rejected: `mapping-failed`, a value on the way is not an object.
    """
    if len(path) == 1:
        root[path[0]] = value
        return
    parent = root
    for depth, key in enumerate(path[:-1], 1):
        child = opened(parent, key)
        if child is None:
            if not is_null(parent.get(key, NULL_SLICE)):
                raise Rejected(
                    "mapping-failed",
                    "the field cannot be set: its parent is not an object",
                    json_pointer(path[:depth]),
                )
            child = parent[key] = {}
        parent = child
    parent[path[-1]] = value


def json_text(value: Any) -> bytes:
    """The JSON text of a slice or a value."""
    return bytes(value) if isinstance(value, Raw) else encode(value)


def is_null(value: Any) -> bool:
    """Whether a slice or a value is JSON's null."""
    return value is None or value == NULL_SLICE


def to_python(value: Any) -> Any:
    """A slice or value as Python objects.

    Raises:
        Rejected: `not-json`, a number that a double cannot hold.
    """
    return _decode(_ANY, value) if isinstance(value, Raw) else value


def frozen(value: Any) -> Any:
    """The same value as a slice or scalar, so that changing it in one place changes it nowhere else."""
    if isinstance(value, Raw):
        return value
    return Raw(encode(value)) if isinstance(value, dict | list) else value


def _parent(root: LazyObject, path: KeyPath) -> LazyObject | None:
    parent: LazyObject | None = root
    for key in path[:-1]:
        if parent is None:
            return None
        parent = opened(parent, key)
    return parent


def opened(parent: LazyObject, key: str) -> LazyObject | None:
    """Open the object under a key; None if the value is not an object."""
    value = parent.get(key)
    if isinstance(value, dict):
        return value
    if isinstance(value, Raw) and bytes(value)[:1] == b"{":
        members: LazyObject = _OBJECT.decode(value)
        parent[key] = members
        return members
    return None


def opened_array(parent: LazyObject, key: str) -> list[Any]:
    """Open the array under a key with its elements; empty if the value is not an array."""
    value = parent.get(key)
    if isinstance(value, Raw) and bytes(value)[:1] == b"[":
        value = parent[key] = _opened_elements(value)
    return value if isinstance(value, list) else []


def _opened_elements(value: Raw) -> list[Any]:
    """The elements of an array, with objects and arrays opened."""
    elements: list[Any] = []
    for element in _ARRAY.decode(value):
        first_byte = bytes(element)[:1]
        if first_byte == b"{":
            elements.append(_OBJECT.decode(element))
        elif first_byte == b"[":
            elements.append(_opened_elements(element))
        else:
            elements.append(element)
    return elements


def _decode_utf8(decoder: Any, data: bytes) -> Any:
    """Check that a text is UTF-8 and decode it; afterwards its slices are known to be UTF-8."""
    try:
        data.decode()  # msgspec does not check strings that it leaves as slices
    except UnicodeDecodeError:
        raise Rejected("not-json", "the data is not UTF-8") from None
    return _decode(decoder, data)


def _decode(decoder: Any, text: bytes | Raw) -> Any:
    """Decode a text or slice that is known to be UTF-8."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        if "out of range" in str(error):
            raise Rejected("not-json", "a number of the data is larger than a double can hold") from None
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else "its syntax is invalid"
        raise Rejected("not-json", f"the data is not JSON: {reason}") from None
