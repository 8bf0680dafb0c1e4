"""Validate the attributes of a CloudEvent and turn them into record headers. Pure.

CloudEvents 1.0.2, core specification; headers as in the Kafka protocol binding, binary content mode. Recommendations
of the specification are not enforced: a name may be longer than 20 characters, and `source` and `dataschema` may
contain characters outside ASCII.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from hifi.record.cloudevents import timestamps
from hifi.record.cloudevents.event import DecodedEvent, InvalidEvent
from hifi.record.headers import CE_PREFIX, CONTENT_TYPE
from hifi.runtime.http.media_type import media_type

_NAME: Final = re.compile(r"[a-z0-9]{1,128}")
_RESERVED: Final = frozenset({"data", "data_base64"})
# C0 and C1 control characters, surrogates and noncharacters.
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_NOT_URI: Final = re.compile(rb'[\x00-\x20<>"{}|\\^`\x7f]')
_CACHED_BYTES: Final = 256
"""Longer values are not kept in caches, which count their entries only."""
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*:.")

REQUIRED: Final = ("specversion", "id", "source", "type")
JSON_TYPE: Final = b"application/json"
BYTES_TYPE: Final = b"application/octet-stream"
MAX_ID_BYTES: Final = 512
"""Receivers get the id percent-encoded as a header, and many of them refuse headers of 4 kB and more."""
MAX_ATTRIBUTE_BYTES: Final = 4096
RESERVED_TYPE: Final = "hifi.watermark"
"""Type of the events by which hifi tells destinations the watermark: no event of a pipe has it."""
_RESERVED_TYPE: Final = RESERVED_TYPE.encode()
_UNPROCESSABLE: Final = 422
BINARY_ATTRIBUTES: Final = (*REQUIRED, "subject", "time", "dataschema", "partitionkey")
"""Attributes of the specification that binary mode sends as headers `ce-…`."""
_HEADERS: Final = {name: CE_PREFIX + name for name in BINARY_ATTRIBUTES} | {"datacontenttype": CONTENT_TYPE}


def assemble(values: Mapping[str, bytes], data: bytes) -> DecodedEvent:
    """Build an event from its attributes and data.

    Args:
        values: attribute name to the UTF-8 of its canonical text; `datacontenttype` included.
        data: of the event.

    Raises:
        InvalidEvent: an attribute is missing or invalid.
    """
    identifier, source = values.get("id"), values.get("source")
    if not (identifier and source and values.get("type") and values.get("specversion")):
        raise InvalidEvent(_missing(values))
    check_lengths(values)
    if values["type"] == _RESERVED_TYPE:
        raise InvalidEvent(f"the type {RESERVED_TYPE} is reserved for hifi", "/type", _UNPROCESSABLE)
    if values["specversion"] != b"1.0":
        raise InvalidEvent("specversion must be 1.0", "/specversion")
    if not is_uri_like(source):
        raise InvalidEvent(
            "source must be a URI reference: it contains a character that is not allowed in one", "/source"
        )
    subject, time = values.get("subject"), values.get("time")
    if subject == b"":
        raise InvalidEvent("subject must not be empty", "/subject")
    time_us = None
    if time is not None:
        try:
            time_us, time = timestamps.parse(time)
        except ValueError:
            raise InvalidEvent(
                "time must be an RFC 3339 timestamp such as 2026-01-31T23:59:59.5Z", "/time"
            ) from None
    schema = values.get("dataschema")
    if schema is not None and not (_SCHEME.match(schema) and is_uri_like(schema)):
        raise InvalidEvent("dataschema must be an absolute URI", "/dataschema")
    content_type = values.get("datacontenttype")
    if content_type is not None and media_type(content_type) is None:
        raise InvalidEvent("datacontenttype must be a media type", "/datacontenttype")
    headers = [
        (_HEADERS.get(name) or _header(name), time if name == "time" and time is not None else value)
        for name, value in values.items()
    ]
    key = values.get("partitionkey") or subject or identifier
    return DecodedEvent(source, identifier, key, headers, data, time_us)


def check_lengths(values: Mapping[str, bytes]) -> None:
    """Raises InvalidEvent (422) if the id or another attribute is too long for a header of a request.

    Args:
        values: attribute name to UTF-8 text, `id` included.
    """
    if len(values["id"]) > MAX_ID_BYTES or max(map(len, values.values())) > MAX_ATTRIBUTE_BYTES:
        for name, value in values.items():
            limit_bytes = MAX_ID_BYTES if name == "id" else MAX_ATTRIBUTE_BYTES
            if len(value) > limit_bytes:
                detail = f"{_safe_name(name)} has {len(value)} bytes; the limit is {limit_bytes}"
                raise InvalidEvent(detail, f"/{_safe_name(name)}", _UNPROCESSABLE)


def encode_text(name: str, value: str) -> bytes:
    """Encode the value of an attribute as UTF-8.

    Raises:
        InvalidEvent: it contains a character that CloudEvents forbids.
    """
    if _FORBIDDEN.search(value):
        raise InvalidEvent(
            f"{_safe_name(name)} contains a control character or a noncharacter", f"/{_safe_name(name)}"
        )
    return value.encode()


@lru_cache(maxsize=4096)
def _header(name: str) -> str:
    # An error is not cached, so no name in the cache is longer than 128 characters.
    if name in _RESERVED or not _NAME.fullmatch(name):
        raise InvalidEvent(
            f"{_safe_name(name)} is not an attribute name: only lower-case letters and digits are allowed",
            f"/{_safe_name(name)}",
        )
    return CE_PREFIX + name


def is_uri_like(value: bytes) -> bool:
    """Whether a value has only characters that are allowed in a URI reference (or are outside ASCII)."""
    return _is_short_uri_like(value) if len(value) <= _CACHED_BYTES else _NOT_URI.search(value) is None


@lru_cache(maxsize=4096)
def _is_short_uri_like(value: bytes) -> bool:
    return _NOT_URI.search(value) is None


def _missing(values: Mapping[str, bytes]) -> str:
    absent_names = [name for name in REQUIRED if name not in values]
    if not absent_names:
        return f"{' and '.join(name for name in REQUIRED if not values[name])} must not be empty"
    return f"{' and '.join(absent_names)} {'is' if len(absent_names) == 1 else 'are'} missing"


def _safe_name(name: str) -> str:
    """A name chosen by the sender, safe to include in a message."""
    return re.sub(r"[^a-zA-Z0-9_-]", "?", name[:40])
