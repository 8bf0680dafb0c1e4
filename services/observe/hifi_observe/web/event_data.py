"""Who may read the data of events that observe shows, and a log line for each time that somebody does."""

import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from hifi.runtime import log

logger = log.get(__name__)


class EventDataReaders:
    """Those who send the operator token; without one, whoever is on this machine if observe listens there only."""

    def __init__(self, host: str, token: str) -> None:
        """Decide by the settings.

        Args:
            host: address that observe listens at.
            token: of the operator; empty: there is none.
        """
        self._token = token
        self._is_local = _is_loopback(host)

    def shown(
        self, request: Request, pipe: str, dead_letters: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Dead letters as the sender of a request may see them: `withheld` says that their data is left out."""
        reader = self._reader(request)
        if reader is not None and any(letter["data"] for letter in dead_letters):
            peer = request.client.host if request.client else ""
            logger.info(
                "event-data-read", pipe=pipe, dead_letters=len(dead_letters), reader=reader, peer=peer
            )
        withheld = reader is None
        return [
            {**letter, "data": "" if withheld else letter["data"], "withheld": withheld}
            for letter in dead_letters
        ]

    def _reader(self, request: Request) -> str | None:
        sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._token and hmac.compare_digest(sent.encode(), self._token.encode()):
            return "operator"
        return "local" if self._is_local else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
