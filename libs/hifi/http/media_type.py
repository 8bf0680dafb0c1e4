"""Media types (RFC 9110, 8.3.1): which data is JSON. Pure."""

import re
from functools import lru_cache
from typing import Final

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE: Final = re.compile(rb"\s*(" + _TOKEN + rb"/" + _TOKEN + rb")\s*(?:;.*)?")
_JSON: Final = re.compile(rb"[^/]+/(?:json|[^/]*\+json)")


@lru_cache(maxsize=4096)
def media_type(content_type: bytes) -> bytes | None:
    """The media type of a Content-Type, lower case and without parameters; None when it is none."""
    match = _MEDIA_TYPE.fullmatch(content_type)
    return match[1].lower() if match else None


@lru_cache(maxsize=4096)
def is_json(content_type: bytes) -> bool:
    """Whether a Content-Type declares JSON: `*/json` or `*/*+json` (RFC 6839)."""
    kind = media_type(content_type)
    return kind is not None and _JSON.fullmatch(kind) is not None
