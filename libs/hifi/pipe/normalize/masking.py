"""Drop, redact or hash sensitive fields, in arrays too. Pure, except for reading the hash key once."""

import hmac
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw

from hifi.pipe.mask import Mask
from hifi.pipe.normalize.lazy_json import KeyPath, LazyObject, encode, is_null, key_path, parents, to_python
from hifi.runtime.errors import MaskUnavailable, Misconfigured

REDACTED: Final = "[redacted]"
_CANONICAL: Final = msgspec.json.Encoder(order="sorted")


def masker(masks: dict[str, Mask]) -> Callable[[LazyObject], None]:
    """A function that masks the fields of an event in place.

    Args:
        masks: dotted path to what to do with its value.

    Raises:
        MaskUnavailable: the key of a hash cannot be read.
    """
    replacements = [(key_path(path), replacement(mask)) for path, mask in masks.items()]

    def apply(root: LazyObject) -> None:
        for path, replacement in replacements:
            _mask(root, path, replacement)

    return apply


def _mask(root: LazyObject, path: KeyPath, replace: Callable[[Any], Any] | None) -> None:
    key = path[-1]
    for parent in parents(root, path):
        if replace is None:
            del parent[key]
        else:
            parent[key] = replace(parent[key])


def replacement(mask: Mask) -> Callable[[Any], Any] | None:
    """The function from a value to its masked form; None: drop the field.

    Raises:
        MaskUnavailable: the key of a hash cannot be read.
    """
    if mask == "drop":
        return None
    if mask == "redact":
        return lambda _: REDACTED
    try:
        key = mask.hash.read()
    except Misconfigured as error:
        raise MaskUnavailable(f"the key of a mask cannot be read: {error}") from None
    keyed = hmac.new(key.encode(), digestmod="sha256")
    return lambda value: value if is_null(value) else _keyed_hash(keyed, value)


def _keyed_hash(keyed: hmac.HMAC, value: Any) -> str:
    """HMAC-SHA256 (RFC 2104) of a value, lower-case hex.

    Text is hashed as UTF-8, a number or boolean as its JSON text, an object or array as JSON without white space and
    with sorted names, so equal values have equal hashes however they were written.

    Args:
        keyed: initialized with the key; it is copied, since preparing the key takes longer than hashing a short value.
        value: slice or value.
    """
    content = to_python(value) if isinstance(value, Raw) else value
    if isinstance(content, str):
        message = content.encode()
    elif isinstance(content, dict | list):
        message = _CANONICAL.encode(to_python(Raw(encode(content))))
    else:
        message = bytes(value) if isinstance(value, Raw) else encode(value)
    hashed = keyed.copy()
    hashed.update(message)
    return hashed.hexdigest()
