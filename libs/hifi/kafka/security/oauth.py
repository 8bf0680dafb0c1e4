"""OAuth 2.0 access tokens for SASL/OAUTHBEARER (KIP-255), by the client credentials grant (RFC 6749, section 4.4)."""

import asyncio
import base64
import functools
import http.client
import json
import socket
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

from hifi.runtime.egress import EgressKind, egress

_ANSWER_S: Final = 10.0
_RENEW_SHARE: Final = 0.8
"""Share of its life after which a token is replaced."""
_ANSWER_BYTES: Final = 256 * 1024


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """Fetches a token from an endpoint, and keeps it for most of its life."""

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: Callable[[], str],
        scope: str = "",
        *,
        from_pipe: bool = False,
        pipe: str | None = None,
    ) -> None:
        """Fetch nothing yet.

        Args:
            url: of the endpoint, http or https. Redirects are not followed.
            client_id: of the client.
            client_secret: reads that of the client, for each token.
            scope: to request; empty: none.
            from_pipe: a pipe names the endpoint, so its address must be allowed.
            pipe: for which it is judged; None: only entries for all pipes hold.
        """
        self._url = url
        self._from_pipe, self._pipe = from_pipe, pipe
        self._client_id, self._client_secret = client_id, client_secret
        self._scope = scope
        self._token = ""
        self._renew_at_s = 0.0

    async def token(self) -> str:
        """A token that is valid now.

        Raises:
            KafkaConnectionError: the endpoint gives none; the client tries again.
        """
        if time.monotonic() >= self._renew_at_s:
            self._token, life_s = await asyncio.to_thread(self._fetch)
            self._renew_at_s = time.monotonic() + life_s * _RENEW_SHARE
        return self._token

    def _fetch(self) -> tuple[str, float]:
        fields = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        credentials = ":".join(map(urllib.parse.quote_plus, (self._client_id, self._client_secret())))
        headers = {
            "Authorization": "Basic " + base64.b64encode(credentials.encode()).decode(),
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        url = urllib.parse.urlsplit(self._url)
        connection = self._connection(url)
        try:
            target = urllib.parse.urlunsplit(("", "", url.path or "/", url.query, ""))
            connection.request("POST", target, urllib.parse.urlencode(fields), headers)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise ValueError(f"HTTP {answer.status}")
            grant = json.loads(answer.read(_ANSWER_BYTES))
            return str(grant["access_token"]), float(grant.get("expires_in", 60))
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            raise KafkaConnectionError(
                f"the token endpoint {self._url} gave no access token: {error!r}"
            ) from error
        finally:
            connection.close()

    def _connection(self, url: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=_ANSWER_S)
        if self._from_pipe:
            create_connection = functools.partial(_judged_connection, self._pipe)
            connection._create_connection = create_connection  # type: ignore[attr-defined]  # noqa: SLF001
        return connection


def _judged_connection(
    pipe: str | None, address: tuple[str, int], timeout: float, source_address: Any = None
) -> socket.socket:
    """As `socket.create_connection`, to addresses that are allowed for a pipe only."""
    host, port = address
    failure: OSError = OSError(f"{host} has no address")
    for info in egress(pipe).addresses_blocking(EgressKind.TOKEN, host, port):
        try:
            return socket.create_connection(info[4][:2], timeout, source_address)
        except OSError as error:
            failure = error
    raise failure
