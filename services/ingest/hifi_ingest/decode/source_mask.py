"""Mask data and attributes of events when they are accepted, before anything is stored. Pure, except for the keys."""

from collections.abc import Callable
from typing import Any, Final

from hifi.pipe.mask import SourceMask
from hifi.pipe.normalize.lazy_json import encode, open_object
from hifi.pipe.normalize.masking import Masker, replacement
from hifi.record.headers import CE_PREFIX, CONTENT_TYPE, Headers
from hifi.runtime.errors import Rejected
from hifi.runtime.http.media_type import is_json

_KEY_HEADERS: Final = ("ce_partitionkey", "ce_subject")
"""Attributes that give the record key, in this order."""


class SourceMasker:
    """The masks of a version of a pipe."""

    def __init__(self, mask: SourceMask) -> None:
        """Read the keys of hashes.

        Raises:
            MaskUnavailable: a key cannot be read.
        """
        self._masker = Masker(mask.data) if mask.data else None
        self._attributes: dict[str, Callable[[Any], Any] | None] = {
            CE_PREFIX + name: replacement(method) for name, method in mask.attributes.items()
        }

    def data(self, data: bytes, content_type: bytes | None) -> bytes:
        """Mask the data of an event.

        Args:
            data: as sent; empty: there is none.
            content_type: of the data; None: not declared.

        Raises:
            Rejected: `not-json` or `not-an-object`, so its fields cannot be found.
        """
        if self._masker is None or not data:
            return data
        if content_type is not None and not is_json(content_type):
            raise Rejected("not-json", "the pipe masks fields of JSON, and the content type is not JSON")
        root = open_object(data)
        self._masker.apply(root)
        return encode(root)

    def never_met(self) -> list[str]:
        """The paths whose mask met no field in all events so far; empty before 1,000 events."""
        return [] if self._masker is None else self._masker.never_met()

    def headers(self, headers: Headers) -> Headers:
        """Mask the attributes of an event."""
        if not self._attributes:
            return headers
        masked_headers: Headers = []
        for name, value in headers:
            if name not in self._attributes:
                masked_headers.append((name, value))
            elif (replace := self._attributes[name]) is not None:
                masked_headers.append((name, str(replace(value.decode())).encode()))
        return masked_headers

    def key(self, key: bytes, headers: Headers) -> bytes:
        """The record key of an event: the masked attribute that it was taken from.

        Args:
            key: before attributes were masked.
            headers: with masked attributes.
        """
        for name in _KEY_HEADERS:
            value = next((value for header, value in headers if header == name and value), None)
            if value is not None:
                return value if name in self._attributes else key
        return key


def content_type(headers: Headers) -> bytes | None:
    """The declared media type of an event's data."""
    return next((value for name, value in headers if name == CONTENT_TYPE), None)
