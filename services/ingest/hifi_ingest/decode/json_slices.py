"""JSON as it was sent: checked whole, cut into its parts, never written anew. Pure.

The parts stay slices of what came in, so that numbers keep their digits, objects their order and strings their
escapes. msgspec checks the syntax of RFC 8259 while it cuts; it does not look at UTF-8 and does not bound nesting, so
both are done here.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import Raw

from hifi_ingest.http.answers import Flaw

_ONE: Final = msgspec.json.Decoder(Raw)
_ARRAY: Final = msgspec.json.Decoder(list[Raw])
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_ARRAY_OF_MEMBERS: Final = msgspec.json.Decoder(list[dict[str, Raw]])
_ANY: Final = msgspec.json.Decoder()
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_PLAIN: Final = re.compile(rb"[ !#-\[\]-~]*")

Members = dict[str, Raw]


def utf8(body: bytes) -> None:
    """Raises Flaw: the body is not UTF-8."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Flaw(f"not UTF-8 at byte {error.start}") from None


def one(text: bytes) -> bytes:
    """One JSON value without the white space around it.

    Raises:
        Flaw: not JSON.
    """
    return bytes(_decoded(_ONE, text))


def array(text: bytes) -> list[bytes]:
    """The elements of an array.

    Raises:
        Flaw: not JSON, or no array.
    """
    return [bytes(element) for element in _decoded(_ARRAY, text)]


def members(text: bytes) -> Members:
    """The members of an object.

    Raises:
        Flaw: not JSON, or no object.
    """
    found: Members = _decoded(_MEMBERS, text)
    return found


def array_of_members(text: bytes) -> list[Members]:
    """The members of each object in an array.

    Raises:
        Flaw: not JSON, or no array of objects.
    """
    found: list[Members] = _decoded(_ARRAY_OF_MEMBERS, text)
    return found


def value(text: bytes) -> Any:
    """A value as Python has it.

    Raises:
        Flaw: not JSON, or a number beyond what a double holds.
    """
    return _decoded(_ANY, text)


def shallow(text: bytes, limit: int) -> None:
    """Raises Flaw: valid JSON whose arrays and objects are nested deeper than `limit`."""
    if text.count(b"{") + text.count(b"[") <= limit:
        return
    rest = _STRING.sub(b"", text).translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(limit):
        if not rest:
            return
        rest = rest.replace(b"[]", b"")
    if rest:
        raise Flaw(f"nested deeper than {limit} levels")


def is_plain(text: bytes) -> bool:
    """Only printable ASCII, without quotes and backslashes: as a JSON string it stands for itself."""
    return _PLAIN.fullmatch(text) is not None


def _decoded(decoder: Any, text: bytes) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise Flaw(_sentence(str(error))) from None
    except msgspec.DecodeError as error:
        raise Flaw(f"not JSON: {_sentence(str(error))}") from None
    except RecursionError:
        raise Flaw("nested too deeply") from None


def _sentence(message: str) -> str:
    """The message without msgspec's own way of naming places."""
    sentence, _, _ = message.removeprefix("JSON is malformed: ").partition(" - at ")
    return sentence[:1].lower() + sentence[1:].replace("`", "")
