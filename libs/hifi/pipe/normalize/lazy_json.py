"""A JSON object taken apart only where it is touched. Pure.

What nobody touches stays the slice of text that it was, so numbers keep their digits, objects their order and strings
their escapes, and nothing is copied for its own sake. A touched object is a dict of slices, and so on inwards.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw

from hifi.errors import Rejected

Tree = dict[str, Any]
"""Name to a slice (Raw), an opened object (dict) or a new value."""
Path = tuple[str, ...]

MISSING: Final = object()
NULL_SLICE: Final = Raw(b"null")

_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_ARRAY: Final = msgspec.json.Decoder(list[Raw])
_ANY: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()


def path_of(text: str) -> Path:
    """`address.city` as its parts."""
    return tuple(text.split("."))


def pointer(path: Path) -> str:
    """A path as a JSON pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def parse(data: bytes) -> Any:
    """The whole of a JSON text as Python has it.

    Raises:
        Rejected: `not-json`.
    """
    return _decoded(_ANY, data)


def open_root(data: bytes) -> Tree:
    """The members of a JSON text that is an object.

    Raises:
        Rejected: `not-json` or `not-an-object`.
    """
    if data.lstrip(b" \t\r\n")[:1] != b"{":
        _decoded(_ANY, data)
        raise Rejected("not-an-object", "the data is JSON, but not an object")
    tree: Tree = _decoded(_OBJECT, data)
    return tree


def encode(value: Any) -> bytes:
    """A tree, or any value of JSON, as text."""
    return _ENCODER.encode(value)


def get(tree: Tree, path: Path) -> Any:
    """What is at a path: a slice, an opened object or a new value; MISSING when there is nothing."""
    holder = tree if len(path) == 1 else _holder(tree, path)
    return MISSING if holder is None else holder.get(path[-1], MISSING)


def put(tree: Tree, path: Path, value: Any) -> None:
    """Set a path, making the objects on the way.

    Raises:
        Rejected: `mapping-failed`, something on the way is there and is no object.
    """
    if len(path) == 1:
        tree[path[0]] = value
        return
    holder = tree
    for depth, part in enumerate(path[:-1], 1):
        inner = _opened(holder, part)
        if inner is None:
            if not is_null(holder.get(part, NULL_SLICE)):
                raise Rejected(
                    "mapping-failed",
                    "there is no room for the field: this is no object",
                    pointer(path[:depth]),
                )
            inner = holder[part] = {}
        holder = inner
    holder[path[-1]] = value


def holders(tree: Tree, path: Path) -> list[Tree]:
    """Every object that holds the last part of a path; on the way, arrays stand for all their elements."""
    holder = tree
    for depth, part in enumerate(path[:-1], 1):
        inner = _opened(holder, part)
        if inner is None:
            return _holders_in(_list(holder, part), path[depth:])
        holder = inner
    return [holder] if path[-1] in holder else []


def _holders_in(elements: list[Any], path: Path) -> list[Tree]:
    found: list[Tree] = []
    for element in elements:
        if isinstance(element, dict):
            found += holders(element, path)
        elif isinstance(element, list):
            found += _holders_in(element, path)
    return found


def text_of(value: Any) -> bytes:
    """The JSON text of a slice or a value."""
    return bytes(value) if isinstance(value, Raw) else encode(value)


def is_null(value: Any) -> bool:
    """Whether a slice or a value is JSON's null."""
    return value is None or value == NULL_SLICE


def plain(value: Any) -> Any:
    """A slice or value as Python has it.

    Raises:
        Rejected: `not-json`, a number is beyond what a double holds.
    """
    return _read(_ANY, value) if isinstance(value, Raw) else value


def closed(value: Any) -> Any:
    """The same value, of which no part can be touched from two places."""
    if isinstance(value, Raw):
        return value
    return Raw(encode(value)) if isinstance(value, dict | list) else value


def _holder(tree: Tree, path: Path) -> Tree | None:
    holder: Tree | None = tree
    for part in path[:-1]:
        if holder is None:
            return None
        holder = _opened(holder, part)
    return holder


def _opened(tree: Tree, name: str) -> Tree | None:
    """The object under a name, opened from now on; None when it is no object."""
    value = tree.get(name)
    if isinstance(value, dict):
        return value
    if isinstance(value, Raw) and bytes(value)[:1] == b"{":
        opened: Tree = _OBJECT.decode(value)
        tree[name] = opened
        return opened
    return None


def _list(tree: Tree, name: str) -> list[Any]:
    """The array under a name, its elements opened from now on; empty when it is no array."""
    value = tree.get(name)
    if isinstance(value, Raw) and bytes(value)[:1] == b"[":
        value = tree[name] = _elements(value)
    return value if isinstance(value, list) else []


def _elements(value: Raw) -> list[Any]:
    """The elements of an array, objects and arrays opened."""
    elements: list[Any] = []
    for element in _ARRAY.decode(value):
        first = bytes(element)[:1]
        if first == b"{":
            elements.append(_OBJECT.decode(element))
        elif first == b"[":
            elements.append(_elements(element))
        else:
            elements.append(element)
    return elements


def _decoded(decoder: Any, data: bytes) -> Any:
    """What a whole text holds; its slices are UTF-8 from then on."""
    try:
        data.decode()  # msgspec does not look at the strings that it leaves as slices
    except UnicodeDecodeError:
        raise Rejected("not-json", "the data is not UTF-8") from None
    return _read(decoder, data)


def _read(decoder: Any, text: bytes | Raw) -> Any:
    """What a text or slice holds that is known to be UTF-8."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else "its syntax is wrong"
        raise Rejected("not-json", f"the data is not JSON: {what}") from None
