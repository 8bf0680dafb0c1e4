"""Build the HTTP requests of a destination: CloudEvents 1.0 HTTP and JSON bindings, transforms, signatures.

Attributes are UTF-8 in Kafka headers (Kafka binding, 3.2.3) and percent-encoded in HTTP headers (HTTP binding,
3.1.3.2).
"""

import base64
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import orjson
from aiokafka import ConsumerRecord

from hifi.delivery.transform import compile_transform
from hifi.delivery.watermark_event import is_watermark
from hifi.record.headers import CE_PREFIX, CONTENT_TYPE
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import Misconfigured, Rejected
from hifi.runtime.health import version
from hifi.runtime.http.media_type import is_json
from hifi_http.declaration import HttpDestination
from hifi_http.destination.percent_encoding import percent_encoded
from hifi_http.destination.signature import signer, webhook_id

JSON: Final = b"application/json"
STRUCTURED: Final = b"application/cloudevents+json"
BATCHED: Final = b"application/cloudevents-batch+json"
_TRACE: Final = {"ce_traceparent": b"traceparent: ", "ce_tracestate": b"tracestate: "}
_JSON_AS_IS: Final = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\')
"""The bytes that stand for themselves in a JSON string."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_RESERVED: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te", "trailer"}
)
_OF_SIGNATURES: Final = frozenset({"webhook-id", "webhook-timestamp", "webhook-signature"})


class RequestTemplate:
    """The constant part of all requests to one destination; makes requests of events."""

    def __init__(
        self, destination: HttpDestination, headers: dict[str, str], signing: Sequence[str], token: str = ""
    ) -> None:
        """Compile and validate the declaration of a destination.

        Args:
            destination: as declared.
            headers: of each request, with secrets filled in.
            signing: secrets, with each of which requests are signed.
            token: access token; empty: none.

        Raises:
            Misconfigured: a header, the transform or the signing secret is invalid; the message quotes no secret.
        """
        self._format = destination.format
        self._transform = None if destination.transform is None else compile_transform(destination.transform)
        self._signers = [signer(key) for key in signing]
        self.token = token
        sent_headers = headers | ({"Authorization": f"Bearer {token}"} if token else {})
        is_signed = bool(signing) or destination.signing is not None
        self._head = _head(destination, sent_headers, is_signed=is_signed)
        self._own_type = any(name.lower() == "content-type" for name in headers)
        self._batched = destination.batch is not None
        self._asks_for_watermark = destination.watermark is not None

    def part(self, record: ConsumerRecord) -> bytes:
        """The part of a request's body that represents one event.

        Raises:
            Rejected: the event cannot be represented in the destination's format.
        """
        data = record.value or b""
        if self._transform is not None and not (self._asks_for_watermark and is_watermark(record)):
            data = self._transform(data)
        if self._format == "json":
            return data if not self._batched else self._element(record, data)
        if self._format == "cloudevents-structured" or self._batched:
            return _structured(record, data, transformed=self._transform is not None)
        return data

    def request(self, records: Sequence[ConsumerRecord], body_parts: Sequence[bytes], now_us: int) -> bytes:
        """A complete request, head and body.

        Args:
            records: of the events in it; several only for a destination with batches.
            body_parts: of the body, one for each record; see `part`.
            now_us: time of the signature, microseconds since 1970 UTC.

        Raises:
            Rejected: the body is not UTF-8 and cannot be signed.
        """
        body = b"[" + b",".join(body_parts) + b"]" if self._batched else body_parts[0]
        lines = [self._head]
        content_type = JSON
        if self._batched:
            content_type = JSON if self._format == "json" else BATCHED
        else:
            is_binary = self._format == "cloudevents-binary"
            for name, value in records[0].headers:
                if name.startswith(CE_PREFIX):
                    if is_binary:
                        lines.append(b"%b%b\r\n" % (_line(name), percent_encoded(value)))
                    if name in _TRACE and (text := _plain(value)):
                        lines.append(b"%b%b\r\n" % (_TRACE[name], text))
                elif name == CONTENT_TYPE and self._transform is None:
                    content_type = _plain(value) or JSON
            if self._format == "cloudevents-structured":
                content_type = STRUCTURED
        if not self._own_type:
            lines.append(b"Content-Type: %b\r\n" % content_type)
        if self._signers:
            lines.append(self._signature(records, body, now_us))
        lines.append(b"Content-Length: %d\r\n\r\n" % len(body))
        lines.append(body)
        return b"".join(lines)

    def _element(self, record: ConsumerRecord, data: bytes) -> bytes:
        media_type = next((value for name, value in record.headers if name == CONTENT_TYPE), JSON)
        if self._transform is None and not is_json(media_type):
            raise Rejected("not-json", "data that is not JSON cannot be an element of a JSON array")
        return data or b"null"

    def _signature(self, records: Sequence[ConsumerRecord], body: bytes, now_us: int) -> bytes:
        identifier = webhook_id(records)
        seconds = now_us // MICROSECONDS
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            raise Rejected(
                "not-signable", "the body is not UTF-8, so it cannot be signed (Standard Webhooks)"
            ) from None
        signature = " ".join(sign(identifier, seconds, text) for sign in self._signers)
        lines = (
            f"webhook-id: {identifier}",
            f"webhook-timestamp: {seconds}",
            f"webhook-signature: {signature}",
            "",
        )
        return "\r\n".join(lines).encode()


def target(destination: HttpDestination) -> tuple[str, str, int, str]:
    """Scheme, host (without brackets), port and request target of a destination's URL."""
    url = destination.url
    assert url.host is not None
    assert url.port is not None
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    return url.scheme, url.host.strip("[]"), url.port, path


def _head(destination: HttpDestination, headers: dict[str, str], *, is_signed: bool) -> bytes:
    scheme, host, port, path = target(destination)
    authority = f"[{host}]" if ":" in host else host
    if port != {"http": 80, "https": 443}[scheme]:
        authority += f":{port}"
    lines = [f"{destination.method} {path} HTTP/1.1", f"Host: {authority}"]
    if not any(name.lower() == "user-agent" for name in headers):
        lines.append(f"User-Agent: hifi/{version('egest')}")
    reserved_names = _RESERVED | (_OF_SIGNATURES if is_signed else frozenset())
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or name.lower() in reserved_names:
            raise Misconfigured(f"the header {name!r} of {destination.name} cannot be set")
        if not _VALUE.fullmatch(value):
            raise Misconfigured(
                f"the value of the header {name} of {destination.name} is not printable ASCII"
            )
        lines.append(f"{name}: {value}")
    return "".join(line + "\r\n" for line in lines).encode("ascii")


def _structured(record: ConsumerRecord, data: bytes, *, transformed: bool) -> bytes:
    # Most attributes need no escapes. Their text is joined, which takes two thirds of the CPU of an encoder.
    members, values, content_type = b"", b"", JSON
    for name, value in record.headers:
        member = _member(name)
        if member:
            members += member + value + b'",'
            values += value
        elif name == CONTENT_TYPE and not transformed:
            content_type = value
    if data and is_json(content_type) and not (values + content_type).translate(None, _JSON_AS_IS):
        return b'{%b"datacontenttype":"%b","data":%b}' % (members, content_type, data)
    return _encoded(record, data, content_type)


def _encoded(record: ConsumerRecord, data: bytes, content_type: bytes) -> bytes:
    event: dict[str, Any] = {}
    for name, value in record.headers:
        if name.startswith(CE_PREFIX):
            event[name[len(CE_PREFIX) :]] = value.decode("utf-8", "replace")
    event["datacontenttype"] = content_type.decode("utf-8", "replace")
    if data and is_json(content_type):
        event["data"] = orjson.Fragment(data)
    elif data:
        event["data_base64"] = base64.b64encode(data).decode()
    return orjson.dumps(event)


@lru_cache(maxsize=1024)
def _line(name: str) -> bytes:
    attribute = name[len(CE_PREFIX) :]
    if not re.fullmatch(r"[a-z0-9]+", attribute):
        attribute = re.sub(r"[^a-z0-9]", "", attribute.lower())
    return f"ce-{attribute}: ".encode("ascii")


@lru_cache(maxsize=1024)
def _member(name: str) -> bytes:
    """The beginning of the JSON member of an attribute; empty: the Kafka header is none."""
    return orjson.dumps(name[len(CE_PREFIX) :]) + b':"' if name.startswith(CE_PREFIX) else b""


def _plain(value: bytes) -> bytes | None:
    return value if _VALUE.fullmatch(value.decode("latin-1")) else None
