"""Media types of HTTP bodies (RFC 9110, 8.3): which content is JSON, and which is UTF-8. Pure."""

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE: Final = re.compile(rb"\s*(" + _TOKEN + rb"/" + _TOKEN + rb")\s*(?:;[\t\x20-\x7e]*)?")
"""Parameters are printable ASCII, as in each header that is sent on."""
_PARAMETER: Final = re.compile(rb";\s*(" + _TOKEN + rb')\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]*))')
_JSON: Final = re.compile(rb"[^/]+/(?:json|[^/]*\+json)")
_UTF8: Final = frozenset({b"utf-8", b"utf8", b"us-ascii", b"ascii"})
"""Character sets whose text is valid UTF-8."""


_CACHED_BYTES: Final = 256
"""Longer values are not kept in caches, which count their entries only."""

T = TypeVar("T")


def _cached(function: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Cache the results for short values."""
    cached_function = lru_cache(maxsize=4096)(function)

    @wraps(function)
    def call(content_type: bytes) -> T:
        return cached_function(content_type) if len(content_type) <= _CACHED_BYTES else function(content_type)

    return call


@_cached
def media_type(content_type: bytes) -> bytes | None:
    """The media type of a Content-Type in lower case, without parameters; None if it is malformed."""
    match = _MEDIA_TYPE.fullmatch(content_type)
    return match[1].lower() if match else None


@_cached
def is_json(content_type: bytes) -> bool:
    """Whether a Content-Type declares JSON: `*/json` or `*/*+json` (RFC 6839)."""
    kind = media_type(content_type)
    return kind is not None and _JSON.fullmatch(kind) is not None


@_cached
def is_utf8(content_type: bytes) -> bool:
    """Whether a Content-Type leaves the text as UTF-8: no `charset` parameter, or UTF-8 or its subset US-ASCII."""
    return all(
        (quoted_charset or plain_charset).lower() in _UTF8
        for name, quoted_charset, plain_charset in _PARAMETER.findall(content_type)
        if name.lower() == b"charset"
    )
