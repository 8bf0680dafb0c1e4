"""Reading the body of a request within its bounds, and undoing its content coding."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import Receive

from hifi_ingest.http.answers import Problem
from hifi_ingest.http.decompression import CODINGS, expand
from hifi_ingest.http.rate_limits import Memory


class Gone(Exception):
    """The client went away before its request was whole, or was cut off for being slow."""


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """How large a body may be, as it is sent and with its coding undone."""

    sent_bytes: int
    expanded_bytes: int


class Body:
    """The body of one request; `release` when it is done with."""

    def __init__(self, memory: Memory, bounds: BodyBounds) -> None:
        self._memory = memory
        self._bounds = bounds
        self._held_bytes = 0

    async def read(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """All of the body, as it was sent.

        Raises:
            Problem: 413, 415 or 503.
            Gone: the client went away.
        """
        coding = headers.get(b"content-encoding", b"identity").strip().lower().decode("latin-1")
        if coding not in CODINGS and coding != "identity":
            # RFC 7694 says so with Accept-Encoding in the answer.
            raise Problem(415, "the content coding must be gzip or zstd", [("accept-encoding", "gzip, zstd")])
        length = headers.get(b"content-length")
        if length is not None and int(length) > self._bounds.sent_bytes:
            raise self._too_large()
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        body: bytes = message.get("body", b"")
        self._hold(len(body))
        if message.get("more_body", False):
            body = await self._rest(body, receive)
        if len(body) > self._bounds.sent_bytes:
            raise self._too_large()
        return body

    async def expand(self, headers: Mapping[bytes, bytes], body: bytes) -> bytes:
        """The body with its content coding undone.

        Raises:
            Problem: 400, 413 or 503.
        """
        coding = headers.get(b"content-encoding", b"identity").strip().lower().decode("latin-1")
        if coding == "identity":
            return body
        pieces = []
        for piece in expand(coding, body, self._bounds.expanded_bytes):
            self._hold(len(piece))
            pieces.append(piece)
            await asyncio.sleep(0)
        return b"".join(pieces)

    def release(self) -> None:
        """The bytes are no longer needed."""
        self._memory.release(self._held_bytes)
        self._held_bytes = 0

    async def _rest(self, first: bytes, receive: Receive) -> bytes:
        pieces = [first]
        size = len(first)
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise Gone
            piece: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(piece)
            if size > self._bounds.sent_bytes:
                raise self._too_large()
            self._hold(len(piece))
            pieces.append(piece)
        return b"".join(pieces)

    def _hold(self, size_bytes: int) -> None:
        self._memory.take(size_bytes)
        self._held_bytes += size_bytes

    def _too_large(self) -> Problem:
        return Problem(413, f"the body exceeds {self._bounds.sent_bytes} bytes")
