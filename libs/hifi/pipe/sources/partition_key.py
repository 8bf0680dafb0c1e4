"""The partition key of an event: the value at the path that its pipe declares. Pure."""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from hifi.runtime import exact_json
from hifi.runtime.errors import Rejected

MAX_KEY_BYTES: Final = 64 * 1024


def partition_key(text: bytes, path: Sequence[str]) -> bytes | None:
    """The key in the data of an event; None: it has none.

    Args:
        text: data of the event, JSON.
        path: of the field.

    Raises:
        Rejected: the field is neither a string nor an integer, it is too large, or a number of the data has an exponent
            of more than 18 digits.
    """
    try:
        value = _value_at(orjson.loads(text), path)
    except orjson.JSONDecodeError:  # a number is larger than a double
        value = _exact_value_at(text, path)
    if isinstance(value, float):  # or a whole number of more than 64 bits
        value = _exact_value_at(text, path)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Rejected("partition-key", f"the field {'.'.join(path)} must be a string or an integer")
    key = str(value).encode()
    if len(key) > MAX_KEY_BYTES:
        raise Rejected("too-large", f"the partition key has {len(key)} bytes; the limit is {MAX_KEY_BYTES}")
    return key


def _exact_value_at(text: bytes, path: Sequence[str]) -> Any:
    try:
        return _value_at(exact_json.loads(text), path)
    except ValueError as error:
        raise Rejected("partition-key", f"the data cannot be read for the partition key: {error}") from None


def _value_at(document: Any, path: Sequence[str]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document
