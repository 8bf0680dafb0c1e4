"""OAuth 2.0 access tokens for SASL/OAUTHBEARER (KIP-255), by the client credentials grant (RFC 6749, section 4.4)."""

import asyncio
import base64
import json
import time
import urllib.parse
import urllib.request
from typing import Final

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

_ANSWER_S: Final = 10.0
_RENEW_SHARE: Final = 0.8
"""Share of its life after which a token is replaced."""
_ANSWER_BYTES: Final = 256 * 1024


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """Fetches a token from an endpoint, and keeps it for most of its life."""

    def __init__(self, url: str, client_id: str, client_secret: str, scope: str = "") -> None:
        self._url = url
        pair = f"{urllib.parse.quote_plus(client_id)}:{urllib.parse.quote_plus(client_secret)}"
        self._authorization = "Basic " + base64.b64encode(pair.encode()).decode()
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
        form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        request = urllib.request.Request(  # noqa: S310 - the operator names the endpoint
            self._url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": self._authorization, "Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
                found = json.loads(answer.read(_ANSWER_BYTES))
            return str(found["access_token"]), float(found.get("expires_in", 60))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KafkaConnectionError(
                f"the token endpoint {self._url} gave no access token: {error!r}"
            ) from error
