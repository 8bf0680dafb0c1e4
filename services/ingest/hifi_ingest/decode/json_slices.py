"""Split JSON into slices of the body without re-encoding it. Pure.

Slices keep the digits of numbers, the order of objects and the escapes of strings. msgspec validates the syntax (RFC
8259) while it splits; it checks neither UTF-8 nor the depth of nesting, so this module does.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import Raw

from hifi_ingest.decode.event import InvalidEvent

_VALUE: Final = msgspec.json.Decoder(Raw)
_ARRAY: Final = msgspec.json.Decoder(list[Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_ARRAY_OF_OBJECTS: Final = msgspec.json.Decoder(list[dict[str, Raw]])
_ANY: Final = msgspec.json.Decoder()
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_UNESCAPED: Final = re.compile(rb"[ !#-\[\]-~]*")
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""A surrogate pair, a lone surrogate (group 1) or any other escape."""

Members = dict[str, Raw]
"""Member name of an object to the slice of its value."""


def check_utf8(body: bytes) -> None:
    """Raises InvalidEvent if the body is not UTF-8."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"not UTF-8 at byte {error.start}") from None


def value_slice(text: bytes) -> bytes:
    """The slice of one JSON value, without white space around it.

    Raises:
        InvalidEvent: not JSON.
    """
    return bytes(_decode(_VALUE, text))


def array_elements(text: bytes) -> list[bytes]:
    """The slices of the elements of an array.

    Raises:
        InvalidEvent: not JSON, or not an array.
    """
    return [bytes(element) for element in _decode(_ARRAY, text)]


def object_members(text: bytes) -> Members:
    """The slices of the members of an object.

    Raises:
        InvalidEvent: not JSON, or not an object.
    """
    found: Members = _decode(_OBJECT, text)
    return found


def array_of_object_members(text: bytes) -> list[Members]:
    """The slices of the members of each object in an array.

    Raises:
        InvalidEvent: not JSON, or not an array of objects.
    """
    found: list[Members] = _decode(_ARRAY_OF_OBJECTS, text)
    return found


def decode(text: bytes) -> Any:
    """A JSON value as Python objects.

    Raises:
        InvalidEvent: not JSON, or a number that a double cannot hold.
    """
    return _decode(_ANY, text)


def check_depth(text: bytes, max_depth: int) -> None:
    """Raises InvalidEvent if valid JSON nests arrays and objects deeper than `max_depth`."""
    if not is_within_depth(text, max_depth):
        raise InvalidEvent(f"nested deeper than {max_depth} levels")


def is_within_depth(text: bytes, max_depth: int) -> bool:
    """Whether valid JSON nests arrays and objects at most `max_depth` deep."""
    if text.count(b"{") + text.count(b"[") <= max_depth:
        return True
    rest = _STRING.sub(b"", text).translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(max_depth):
        if not rest:
            return True
        rest = rest.replace(b"[]", b"")
    return not rest


def is_unescaped(text: bytes) -> bool:
    """Whether the content of a JSON string is its own value: printable ASCII without quotes and backslashes."""
    return _UNESCAPED.fullmatch(text) is not None


def _decode(decoder: Any, text: bytes) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise InvalidEvent(_sentence(str(error))) from None
    except msgspec.DecodeError as error:
        raise InvalidEvent(f"not JSON: {_lone_surrogate(text) or _sentence(str(error))}") from None
    except RecursionError:
        raise InvalidEvent("nested too deeply") from None


def _lone_surrogate(text: bytes) -> str | None:
    """Explain a lone surrogate, which msgspec reports as truncated input; None if there is none."""
    for match in _ESCAPE.finditer(text):
        if match[1]:
            return f"the escape sequence at byte {match.start()} is half of a surrogate pair"
    return None


def _sentence(message: str) -> str:
    """The message without msgspec's notation of places."""
    sentence, _, _ = message.removeprefix("JSON is malformed: ").partition(" - at ")
    return sentence[:1].lower() + sentence[1:].replace("`", "")
