"""The partition key of an event: the value at the path that its pipe declares. Pure."""

import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

from hifi.record.cloudevents.json_slices import check_utf8, decode, object_members
from hifi.runtime.errors import Rejected

MAX_KEY_BYTES: Final = 64 * 1024
_INTEGER: Final = re.compile(rb"-?[0-9]+")


def partition_key(text: bytes, path: Sequence[str]) -> bytes | None:
    """The key in the data of an event; None: it has none.

    Args:
        text: of the data, which begins as a JSON object.
        path: of the field.

    Raises:
        InvalidEvent: the text is not JSON.
        Rejected: the field is neither a string nor an integer, or it is too large.
    """
    try:
        value = _value_at(orjson.loads(text), path)
    except orjson.JSONDecodeError:  # or a number is larger than a double
        value = _exact_value_at(text, path)
    if isinstance(value, float):  # or a whole number of more than 64 bits
        value = _exact_value_at(text, path)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | bytes):
        raise Rejected("partition-key", f"the field {'.'.join(path)} must be a string or an integer")
    key = value if isinstance(value, bytes) else str(value).encode()
    if len(key) > MAX_KEY_BYTES:
        raise Rejected("too-large", f"the partition key has {len(key)} bytes; the limit is {MAX_KEY_BYTES}")
    return key


def _value_at(document: Any, path: Sequence[str]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _exact_value_at(text: bytes, path: Sequence[str]) -> Any:
    """As `_value_at`, but a whole number is its digits, bytes; other numbers, objects and arrays are `...`."""
    check_utf8(text)
    value = text.strip()
    for name in path:
        if value[:1] != b"{":
            return None
        value = bytes(object_members(value).get(name, b"null"))
    if _INTEGER.fullmatch(value):
        return value
    return decode(value) if value[:1] in b'"tfn' else ...
