"""An HTTP destination that keeps every event."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
from tests.support.connectors.kind_under_test import EventLog
from tests.support.egest.fake_destination import OK, FakeDestination, ReceivedRequest, answer


class Webhook(EventLog):
    """An HTTP server that refuses bodies that are not JSON, and everything while it is locked."""

    refusal = "status-422"

    def __init__(self, server: FakeDestination) -> None:
        self._server = server
        self._requests: list[ReceivedRequest] = []
        self._open = True
        server.reply = self._reply

    def declared(self, **overrides: Any) -> dict[str, Any]:
        batch = {"size": 100, "wait": "50ms"}
        return {"name": "d", "url": self._server.url, "format": "json", "batch": batch, **overrides}

    async def history(self) -> list[tuple[str, int]]:
        events = [data for request in self._requests for data in orjson.loads(request.body)]
        return [(data["key"], data["number"]) for data in events]

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        self._open = False
        yield
        self._open = True

    async def _reply(self, request: ReceivedRequest) -> bytes:
        if not self._open:
            return answer(503)
        try:
            orjson.loads(request.body)
        except orjson.JSONDecodeError:
            return answer(422)
        self._requests.append(request)
        return OK
