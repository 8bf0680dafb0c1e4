"""Sensitive fields dropped, redacted or replaced by a keyed hash. Pure, but for reading the key once.

A mask reaches into arrays too: what it names is masked wherever it is.
"""

import hmac
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw

from hifi.pipe.model import Mask
from hifi.pipe.normalize.lazy_json import Path, Tree, encode, holders, is_null, path_of, plain

REDACTED: Final = "[redacted]"
_CANONICAL: Final = msgspec.json.Encoder(order="sorted")


def masker(masks: dict[str, Mask]) -> Callable[[Tree], None]:
    """What masks the fields of a tree.

    Raises:
        Misconfigured: the key of a hash cannot be read.
    """
    each = [(path_of(path), _change(mask)) for path, mask in masks.items()]

    def apply(tree: Tree) -> None:
        for path, change in each:
            _mask(tree, path, change)

    return apply


def _mask(tree: Tree, path: Path, change: Callable[[Any], Any] | None) -> None:
    name = path[-1]
    for holder in holders(tree, path):
        if change is None:
            del holder[name]
        else:
            holder[name] = change(holder[name])


def _change(mask: Mask) -> Callable[[Any], Any] | None:
    """What becomes of a value; None: it goes."""
    if mask == "drop":
        return None
    if mask == "redact":
        return lambda _: REDACTED
    keyed = hmac.new(mask.hash.read().encode(), digestmod="sha256")
    return lambda value: value if is_null(value) else keyed_hash(keyed, value)


def keyed_hash(keyed: hmac.HMAC, value: Any) -> str:
    """HMAC-SHA256 (RFC 2104) of a value, lower-case hex; `keyed` has the key, and nothing to hash yet.

    Text is hashed as its UTF-8, a number or boolean as its JSON text, an object or array as JSON without white space
    and with sorted names; so equal values have equal hashes however they were written down.
    """
    content = plain(value) if isinstance(value, Raw) else value
    if isinstance(content, str):
        message = content.encode()
    elif isinstance(content, dict | list):
        message = _CANONICAL.encode(plain(Raw(encode(content))))
    else:
        message = bytes(value) if isinstance(value, Raw) else encode(value)
    hashed = keyed.copy()  # preparing the key takes longer than hashing a short value
    hashed.update(message)
    return hashed.hexdigest()
