"""Limit request bodies: their size, their size without content coding, and the memory of all of them together."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import Receive

from hifi.runtime.http.problem import Problem, retry_later
from hifi_ingest.http.decompression import CODINGS, decompress


class ClientDisconnected(Exception):
    """The connection was closed before the request was complete."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Largest sizes of a body."""

    sent_bytes: int
    decompressed_bytes: int


class BodyMemory:
    """Counts the bytes of all bodies being processed."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0

    def reserve(self, size_bytes: int) -> None:
        """Raises Problem (503) if the limit is exceeded. A single body always fits."""
        if self.used_bytes and self.used_bytes + size_bytes > self._limit_bytes:
            raise retry_later("too many request bodies are being processed")
        self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Return reserved bytes."""
        self.used_bytes -= size_bytes


class BodyReader:
    """Reads the body of one request. Call `release` when the body is no longer needed."""

    def __init__(self, memory: BodyMemory, limits: BodyLimits) -> None:
        self._memory = memory
        self._limits = limits
        self._reserved_bytes = 0

    async def read(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """Read the whole body as sent.

        Raises:
            Problem: 411, 413, 415 or 503.
            ClientDisconnected: the connection was closed.
        """
        coding = _content_coding(headers)
        if coding not in CODINGS and coding != "identity":
            # RFC 7694: name the supported codings in Accept-Encoding.
            raise Problem(415, "the content coding must be gzip or zstd", [("accept-encoding", "gzip, zstd")])
        length = headers.get(b"content-length")
        if length is None and b"transfer-encoding" not in headers:
            # RFC 9112, section 6.3: such a request has no body, and the bytes that follow are no request either.
            raise Problem(
                411,
                "the request needs Content-Length or Transfer-Encoding: chunked",
                [("connection", "close")],
            )
        if length is not None and int(length) > self._limits.sent_bytes:
            raise self._too_large()
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnected
        body: bytes = message.get("body", b"")
        self.reserve(len(body))
        if message.get("more_body", False):
            body = await self._read_rest(body, receive)
        if len(body) > self._limits.sent_bytes:
            raise self._too_large()
        return body

    async def decompress(self, headers: Mapping[bytes, bytes], body: bytes) -> bytes:
        """Remove the content coding from a body.

        Raises:
            Problem: 400, 413 or 503.
        """
        coding = _content_coding(headers)
        if coding == "identity":
            return body
        chunks = []
        for chunk in decompress(coding, body, self._limits.decompressed_bytes):
            self.reserve(len(chunk))
            chunks.append(chunk)
            await asyncio.sleep(0)
        return b"".join(chunks)

    def release(self) -> None:
        """Return the memory of the body."""
        self._memory.release(self._reserved_bytes)
        self._reserved_bytes = 0

    async def _read_rest(self, first_chunk: bytes, receive: Receive) -> bytes:
        chunks = [first_chunk]
        size_bytes = len(first_chunk)
        has_more = True
        while has_more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnected
            chunk: bytes = message.get("body", b"")
            has_more = message.get("more_body", False)
            size_bytes += len(chunk)
            if size_bytes > self._limits.sent_bytes:
                raise self._too_large()
            self.reserve(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    def reserve(self, size_bytes: int) -> None:
        """Reserve memory until `release`, beyond that of the body.

        Raises:
            Problem: 503.
        """
        self._memory.reserve(size_bytes)
        self._reserved_bytes += size_bytes

    def _too_large(self) -> Problem:
        return Problem(413, f"the body exceeds {self._limits.sent_bytes} bytes")


def _content_coding(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"content-encoding", b"identity").strip().lower().decode("latin-1")
