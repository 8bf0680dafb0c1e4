"""Split JSON into slices of the body without re-encoding it. Pure.

Slices keep the digits of numbers, the order of objects and the escapes of strings. msgspec validates the syntax (RFC
8259) while it splits; it checks neither UTF-8 nor the depth of nesting, so this module does.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import Raw

from hifi.record.cloudevents.event import DecodeLimits, InvalidEvent, check_size

_VALUE: Final = msgspec.json.Decoder(Raw)
_ARRAY: Final = msgspec.json.Decoder(list[Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_ARRAY_OF_OBJECTS: Final = msgspec.json.Decoder(list[dict[str, Raw]])
_ANY: Final = msgspec.json.Decoder()
_STRING: Final = re.compile(rb'"[^"]*"')
"""A string of a text without escapes."""
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_OPEN: Final = ord("[")
_FLAT_PASSES: Final = 4
"""Levels of nesting that are removed with the speed of bytes.replace; most data has no more."""
_EXPLAINED_BYTES: Final = 64 * 1024
_UNESCAPED: Final = re.compile(rb"[ !#-\[\]-~]*")
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""A surrogate pair, a lone surrogate (group 1) or any other escape."""

_BOM: Final = b"\xef\xbb\xbf"
_UTF16_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")

Members = dict[str, Raw]
"""Member name of an object to the slice of its value."""


def without_bom(text: bytes) -> bytes:
    """JSON without the byte order mark of UTF-8, which RFC 8259 (8.1) allows to ignore at the start of a text."""
    return text.removeprefix(_BOM)


def check_utf8(body: bytes) -> None:
    """Raises InvalidEvent if the body is not UTF-8."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        if body.startswith(_UTF16_BOMS):
            raise InvalidEvent("not UTF-8: the byte order mark at its start is that of UTF-16") from None
        raise InvalidEvent(f"not UTF-8 at byte {error.start}") from None


def value_slice(text: bytes) -> bytes:
    """The slice of one JSON value, without white space around it.

    Raises:
        InvalidEvent: not JSON.
    """
    return bytes(_decode(_VALUE, text))


def is_object(text: bytes) -> bool:
    """Whether JSON is an object; its numbers may have any size, as in each event.

    Raises:
        InvalidEvent: not JSON in UTF-8.
    """
    check_utf8(text)
    return value_slice(text)[:1] == b"{"


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
    members: Members = _decode(_OBJECT, text)
    return members


def array_of_object_members(text: bytes) -> list[Members]:
    """The slices of the members of each object in an array.

    Raises:
        InvalidEvent: not JSON, or not an array of objects.
    """
    objects: list[Members] = _decode(_ARRAY_OF_OBJECTS, text)
    return objects


def decode(text: bytes) -> Any:
    """A JSON value as Python objects.

    Raises:
        InvalidEvent: not JSON, or a number that a double cannot hold.
    """
    return _decode(_ANY, text)


def check_data(text: bytes, limits: DecodeLimits) -> None:
    """Raises InvalidEvent if valid JSON is larger than an event may be (413) or nested too deeply."""
    check_size(len(text), limits)
    if not is_within_depth(text, limits.depth):
        raise InvalidEvent(f"nested deeper than {limits.depth} levels")


def is_within_depth(text: bytes, max_depth: int) -> bool:
    """Whether valid JSON nests arrays and objects at most `max_depth` deep; the time is linear in its size."""
    if text.count(b"{") + text.count(b"[") <= max_depth:
        return True
    brackets = _STRING.sub(b"", without_escapes(text).translate(_BRACKETS, _NOT_BRACKETS))
    passes = min(_FLAT_PASSES, max_depth)
    for _ in range(passes):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"")
    max_open, depth = max_depth - passes, 0
    for bracket in brackets:
        if bracket == _OPEN:
            if depth >= max_open:
                return False
            depth += 1
        else:
            depth -= 1
    return True


def without_escapes(text: bytes) -> bytes:
    """JSON without its escaped backslashes and quotation marks: every other quotation mark begins or ends a string."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text


def is_unescaped(text: bytes) -> bool:
    """Whether the content of a JSON string is its own value: printable ASCII without quotes and backslashes."""
    return _UNESCAPED.fullmatch(text) is not None


def _decode(decoder: Any, text: bytes) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise InvalidEvent(_sentence(str(error))) from None
    except msgspec.DecodeError as error:
        reason = _misplaced_bom(text) or _lone_surrogate(text) or _sentence(str(error))
        raise InvalidEvent(f"not JSON: {reason}") from None
    except RecursionError:
        raise InvalidEvent("nested too deeply") from None


def _misplaced_bom(text: bytes) -> str | None:
    """Explain a byte order mark, which is ignored only at the start of a body, a file or a record's value."""
    if text.lstrip(b" \t\r\n").startswith(_BOM):
        return (
            "it begins with a byte order mark (U+FEFF), which is allowed only at the start of a body or file"
        )
    return None


def _lone_surrogate(text: bytes) -> str | None:
    """Explain a lone surrogate, which msgspec reports as truncated input; None if a short text has none."""
    if len(text) > _EXPLAINED_BYTES:
        return None
    for match in _ESCAPE.finditer(text):
        if match[1]:
            return f"the escape sequence at byte {match.start()} is half of a surrogate pair"
    return None


def _sentence(message: str) -> str:
    """The message without msgspec's notation of places."""
    sentence, _, _ = message.removeprefix("JSON is malformed: ").partition(" - at ")
    return sentence[:1].lower() + sentence[1:].replace("`", "")
