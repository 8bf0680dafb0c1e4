"""Drop, redact or hash sensitive fields, in arrays too. Pure, except for reading the hash key once."""

import hmac
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec import Raw

from hifi.pipe.mask import Mask, composed
from hifi.pipe.normalize.lazy_json import LazyObject, encode, is_null, key_path, opened, opened_array
from hifi.runtime import exact_json
from hifi.runtime.errors import MaskUnavailable, Misconfigured, Rejected

REDACTED: Final = "[redacted]"
UNMET_AFTER: Final = 1_000
"""Events after which a mask that met no field of any of them is reported."""
_STRING: Final = msgspec.json.Decoder(str)
_NONE: Final[Mapping[str, Sequence[str]]] = {}


class Masker:
    """Masks the fields of events, and knows which masks never met a field.

    A name with a dot is a path, too: the mask `user.mail` masks `{"user": {"mail": …}}`, `{"user.mail": …}` and
    `{"user.mail.work": …}`. An array stands for its elements, with `0` or `*` in the path or without.

    Names are equal in JSON if their code points are. So that a mask fails safe, it also takes those for one name that
    are equal in Unicode's form NFC.
    """

    def __init__(self, masks: dict[str, Mask], copies: Mapping[str, Sequence[str]] = _NONE) -> None:
        """Read the keys of hashes.

        Args:
            masks: dotted path to what to do with its value.
            copies: dotted path of a mask to further paths that it masks, too.

        Raises:
            MaskUnavailable: the key of a hash cannot be read.
        """
        self._masks = [
            ([_MaskedPath(masked_path) for masked_path in (path, *copies.get(path, ()))], replacement(mask))
            for path, mask in masks.items()
        ]
        self._unmet_paths = set(masks)
        self._events = 0

    def apply(self, root: LazyObject) -> bool:
        """Mask the fields of an event in place. Returns whether there are any."""
        joined_names, is_met = "".join(root), False
        dotted, spellings = "." in joined_names, other_spellings(root, joined_names)
        for paths, replace in self._masks:
            fields: list[tuple[LazyObject, str]] = []
            for path in paths:
                path.collect(root, 0, dotted, spellings, fields)
            if len(fields) > 1:  # a path with an index may lead to a field in two ways
                fields = list({(id(parent), key): (parent, key) for parent, key in fields}.values())
            for parent, key in fields:
                if replace is None:
                    del parent[key]
                else:
                    parent[key] = replace(parent[key])
            if fields:
                is_met = True
                self._unmet_paths.discard(paths[0].text)
        self._events += 1
        return is_met

    def never_met(self) -> list[str]:
        """The paths whose mask met no field in all events so far; empty before 1,000 events."""
        return sorted(self._unmet_paths) if self._unmet_paths and self._events >= UNMET_AFTER else []


class _MaskedPath:
    """All ways to split a dotted path into keys."""

    def __init__(self, text: str) -> None:
        segments = key_path(composed(text))
        self.text = text
        self._depth = len(segments)
        self._is_index = [segment == "*" or segment.isdecimal() for segment in segments]
        self._keys = [
            [(".".join(segments[start:end]), end) for end in range(start + 1, len(segments) + 1)]
            for start in range(len(segments))
        ]
        """For each segment: the keys that begin with it, and the index of the segment after each of them."""
        self._first_keys = [keys[:1] for keys in self._keys]
        self._prefixes = [".".join(segments[start:]) + "." for start in range(len(segments))]

    def collect(
        self,
        parent: LazyObject,
        start: int,
        dotted: bool,
        spellings: Mapping[str, Sequence[str]],
        fields: list[tuple[LazyObject, str]],
    ) -> None:
        """Add the object and key of each value that the path from the segment `start` on names.

        Args:
            parent: object to look into.
            start: index of a segment.
            dotted: whether a key of the object has a dot.
            spellings: of the object, see `other_spellings`.
            fields: to add to.
        """
        for key, end in self._keys[start] if dotted else self._first_keys[start]:
            if key in parent:
                self._collect_under(parent, key, end, fields)
            if spellings:
                for spelling in spellings.get(key, ()):
                    if spelling in parent:
                        self._collect_under(parent, spelling, end, fields)
        if dotted:
            prefix = self._prefixes[start]
            fields += [(parent, key) for key in parent if key.startswith(prefix)]
            for name, keys in spellings.items():
                if name.startswith(prefix):
                    fields += [(parent, key) for key in keys if key in parent]

    def _collect_under(
        self, parent: LazyObject, key: str, end: int, fields: list[tuple[LazyObject, str]]
    ) -> None:
        """As `collect`, of the value under a key, which the segments up to `end` name."""
        if end == self._depth:
            fields.append((parent, key))
            return
        child = opened(parent, key)
        if child is not None:
            self._collect_in_object(child, end, fields)
            return
        elements = opened_array(parent, key)
        if elements and all(self._is_index[end:]):
            fields.append((parent, key))
        else:
            self._collect_in(elements, end, fields)

    def _collect_in_object(
        self, parent: LazyObject, start: int, fields: list[tuple[LazyObject, str]]
    ) -> None:
        joined_names = "".join(parent)
        self.collect(parent, start, "." in joined_names, other_spellings(parent, joined_names), fields)

    def _collect_in(self, elements: list[Any], start: int, fields: list[tuple[LazyObject, str]]) -> None:
        for element in elements:
            if isinstance(element, dict):
                self._collect_in_object(element, start, fields)
                if self._is_index[start] and start + 1 < self._depth:
                    self._collect_in_object(element, start + 1, fields)
            elif isinstance(element, list):
                self._collect_in(element, start, fields)
                if self._is_index[start] and start + 1 < self._depth:
                    self._collect_in(element, start + 1, fields)


def other_spellings(members: LazyObject, joined_names: str) -> Mapping[str, Sequence[str]]:
    """The names of an object that are not in the form NFC, by their form NFC.

    Args:
        members: of the object.
        joined_names: all its names as one text. If it is ASCII, as usual, nothing is looked at.
    """
    if joined_names.isascii():
        return _NONE
    spellings: dict[str, list[str]] = {}
    for name in members:
        if not unicodedata.is_normalized("NFC", name):
            spellings.setdefault(composed(name), []).append(name)
    return spellings


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
    keyed_hmac = hmac.new(key.encode(), digestmod="sha256")
    return lambda value: value if is_null(value) else _keyed_hash(keyed_hmac, value)


def _keyed_hash(keyed_hmac: hmac.HMAC, value: Any) -> str:
    """HMAC-SHA256 (RFC 2104) of a value, lower-case hex; equal values have equal hashes however they were written.

    Args:
        keyed_hmac: initialized with the key; it is copied, since preparing a key takes longer than one short hash.
        value: slice or value.

    Raises:
        Rejected: `not-json`, a number has an exponent of more than 18 digits, or the value is nested too deeply.
    """
    value_hmac = keyed_hmac.copy()
    value_hmac.update(_canonical(bytes(value) if isinstance(value, Raw) else encode(value)))
    return value_hmac.hexdigest()


def _canonical(text: bytes) -> bytes:
    """The one form in which a JSON value is hashed.

    Text as UTF-8; a number in plain digits without zeros at the end of its fraction, with 1,000 digits at most before
    and after the point, else with an exponent; an object or array as JSON without white space, with sorted names and
    numbers in that form.
    """
    first_byte = text[:1]
    if first_byte == b'"':
        return _STRING.decode(text).encode()
    if first_byte in b"tf":
        return text
    chunks: list[str] = []
    try:
        _add_canonical(exact_json.loads(text), chunks)
    except (ValueError, RecursionError):
        raise Rejected(
            "not-json", "a value to hash has a number out of range or is nested too deeply"
        ) from None
    return "".join(chunks).encode()


def _add_canonical(value: Any, chunks: list[str]) -> None:
    if isinstance(value, dict):
        chunks.append("{")
        for index, name in enumerate(sorted(value)):
            chunks += ("," if index else "", encode(name).decode(), ":")
            _add_canonical(value[name], chunks)
        chunks.append("}")
    elif isinstance(value, list):
        chunks.append("[")
        for index, element in enumerate(value):
            chunks.append("," if index else "")
            _add_canonical(element, chunks)
        chunks.append("]")
    elif isinstance(value, int | Decimal) and not isinstance(value, bool):
        chunks.append(exact_json.canonical_number(value))
    else:
        chunks.append(encode(value).decode())
