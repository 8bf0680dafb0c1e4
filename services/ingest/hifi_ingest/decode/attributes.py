"""The attributes of a CloudEvent: which names and values there may be, and what becomes of them on a topic. Pure.

CloudEvents 1.0.2, core specification: names and types of values; headers as in the Kafka protocol binding, binary
content mode. More than the specification demands is not asked for: a name may be longer than 20 characters, a
source or schema may hold characters outside of ASCII.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from hifi.event import CE_PREFIX, CONTENT_TYPE, Headers
from hifi.http.media_type import media_type
from hifi_ingest.decode import timestamps
from hifi_ingest.http.answers import Flaw

_NAME: Final = re.compile(r"[a-z0-9]{1,128}")
_RESERVED: Final = frozenset({"data", "data_base64"})
# C0 and C1 controls, surrogates and non-characters.
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_NO_URI: Final = re.compile(rb'[\x00-\x20<>"{}|\\^`\x7f]')
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*:.")

REQUIRED: Final = ("specversion", "id", "source", "type")
JSON_TYPE: Final = b"application/json"
_HEADERS: Final = {
    name: CE_PREFIX + name for name in (*REQUIRED, "subject", "time", "dataschema", "partitionkey")
} | {"datacontenttype": CONTENT_TYPE}


class Incoming(NamedTuple):
    """One event that came in, checked.

    `headers` are the attributes as they go onto a topic, `key` decides the partition, `time_us` is the event's own
    time in microseconds since 1970 UTC.
    """

    source: bytes
    id: bytes
    key: bytes
    headers: Headers
    data: bytes
    time_us: int | None

    def size_bytes(self) -> int:
        """Data and attributes together."""
        return len(self.data) + sum([len(name) + len(value) for name, value in self.headers])


def assemble(values: Mapping[str, bytes], data: bytes) -> Incoming:
    """The event of attribute values, each the UTF-8 of its canonical text.

    Raises:
        Flaw: an attribute is missing or wrong.
    """
    identifier, source = values.get("id"), values.get("source")
    if not (identifier and source and values.get("type") and values.get("specversion")):
        raise Flaw(_missing(values))
    if values["specversion"] != b"1.0":
        raise Flaw("specversion must be 1.0", "/specversion")
    if not _is_uri_like(source):
        raise Flaw("source must be a URI reference: it holds a character that none may hold", "/source")
    subject, time = values.get("subject"), values.get("time")
    if subject == b"":
        raise Flaw("subject must not be empty", "/subject")
    time_us = None
    if time is not None:
        try:
            time_us = timestamps.read_us(time)
        except ValueError:
            raise Flaw("time must be a time of RFC 3339 such as 2026-01-31T23:59:59.5Z", "/time") from None
    schema = values.get("dataschema")
    if schema is not None and not (_SCHEME.match(schema) and _is_uri_like(schema)):
        raise Flaw("dataschema must be an absolute URI", "/dataschema")
    content_type = values.get("datacontenttype")
    if content_type is not None and media_type(content_type) is None:
        raise Flaw("datacontenttype must be a media type", "/datacontenttype")
    headers = [(_HEADERS.get(name) or _header(name), value) for name, value in values.items()]
    key = values.get("partitionkey") or subject or identifier
    return Incoming(source, identifier, key, headers, data, time_us)


def text(name: str, value: str) -> bytes:
    """The UTF-8 of an attribute's value.

    Raises:
        Flaw: it holds a character that CloudEvents forbids.
    """
    if _FORBIDDEN.search(value):
        raise Flaw(f"{_shown(name)} holds a control character or a non-character", f"/{_shown(name)}")
    return value.encode()


@lru_cache(maxsize=4096)
def _header(name: str) -> str:
    if name in _RESERVED or not _NAME.fullmatch(name):
        raise Flaw(
            f"{_shown(name)} is no attribute name: only lower-case letters and digits", f"/{_shown(name)}"
        )
    return CE_PREFIX + name


@lru_cache(maxsize=4096)
def _is_uri_like(value: bytes) -> bool:
    return _NO_URI.search(value) is None


def _missing(values: Mapping[str, bytes]) -> str:
    absent = [name for name in REQUIRED if name not in values]
    if not absent:
        return f"{' and '.join(name for name in REQUIRED if not values[name])} must not be empty"
    return f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing"


def _shown(name: str) -> str:
    """A name that the sender chose, fit to be shown."""
    return re.sub(r"[^a-zA-Z0-9_-]", "?", name[:40])
