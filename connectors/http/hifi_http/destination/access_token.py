"""OAuth 2.0 access tokens of destinations, by the client credentials grant (RFC 6749, section 4.4)."""

import asyncio
import contextlib
import json
import math
import urllib.parse
from collections.abc import Callable
from typing import Final

import aiohttp

from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi.runtime.egress import EgressKind, egress
from hifi.runtime.errors import Misconfigured
from hifi.runtime.running import cancel
from hifi_http.declaration import HttpOauth
from hifi_http.destination.route import basic_authorization

RETRY_S: Final = 5.0
"""Time between two requests for a token: after one that failed, and after a token that the destination refused."""
_ANSWER_S: Final = 10.0
_ANSWER_BYTES: Final = 256 * 1024
_DEFAULT_LIFE_S: Final = 60.0
"""Life of a token whose endpoint says none, seconds."""
_RENEW_SHARE: Final = 0.8
"""Share of its life after which a token is replaced."""
_SHORTEST_WAIT_S: Final = 0.5
"""Time between two requests for a token at least, however short its life, seconds."""

logger = log.get(__name__)


class AccessToken:
    """Keeps a valid token: fetches it in the background, and another one before it expires."""

    def __init__(
        self,
        pipe: str,
        oauth: HttpOauth,
        secret: Callable[[], str],
        on_change: Callable[[], None],
        **log_fields: str,
    ) -> None:
        """Begin to fetch.

        Args:
            pipe: name.
            oauth: as declared.
            secret: of the client, as it is now.
            on_change: called when `value` or `error` may have changed.
            log_fields: of log lines.
        """
        self.value = ""
        """The token; empty: there is none that is valid."""
        self.error = ""
        """Why there is none; empty: there is one, or the first request has not ended."""
        self._pipe = pipe
        self._oauth = oauth
        self._secret = secret
        self._on_change = on_change
        self._log_fields = log_fields
        self._fetched_s = -math.inf
        self._expires_s = -math.inf
        self._renewal = asyncio.Event()
        self._fetch_ended = asyncio.Event()
        self._stopped = False
        self._task = asyncio.create_task(self._run())

    async def renew(self, refused_token: str) -> bool:
        """Replace a token that the destination refused; returns whether there is another one.

        Args:
            refused_token: the token. One that was fetched less than `RETRY_S` ago is not replaced.
        """
        if self.value == refused_token and not self._stopped:
            if self._fetch_ended.is_set() and monotonic_s() - self._fetched_s >= RETRY_S:
                self._fetch_ended.clear()
                self._renewal.set()
            await self._fetch_ended.wait()  # also where another request has asked
        return bool(self.value) and self.value != refused_token

    async def stop(self) -> None:
        """Stop fetching."""
        self._stopped = True
        self._fetch_ended.set()
        await cancel(self._task)

    async def _run(self) -> None:
        while True:
            self._renewal.clear()
            self._fetch_ended.clear()
            self._fetched_s = monotonic_s()
            try:
                self.value, life_s = await fetch_token(self._pipe, self._oauth, self._secret())
            except Exception as error:  # noqa: BLE001 - of whatever kind: the next request may succeed
                # The message of another error may quote the secret.
                is_told = isinstance(error, Misconfigured)
                reason = str(error) if is_told else f"no access token: {type(error).__name__}"
                logger.warning("no-access-token", error=reason, pipe=self._pipe, **self._log_fields)
                valid_s = self._expires_s - monotonic_s()
                if valid_s <= 0:
                    self.value, self.error = "", reason
                wait_s = min(RETRY_S, valid_s) if valid_s > 0 else RETRY_S
            else:
                self.error = ""
                self._expires_s = self._fetched_s + life_s
                wait_s = max(life_s * _RENEW_SHARE, _SHORTEST_WAIT_S)
            try:
                self._on_change()
            except Exception:
                logger.exception("access-token-unusable", pipe=self._pipe, **self._log_fields)
            self._fetch_ended.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._renewal.wait()


async def fetch_token(pipe: str, oauth: HttpOauth, secret: str) -> tuple[str, float]:
    """A new token, and its life in seconds.

    Args:
        pipe: name.
        oauth: as declared.
        secret: of the client.

    Raises:
        Misconfigured: there is none.
    """
    url = str(oauth.token_url)
    pair = map(urllib.parse.quote_plus, (oauth.client_id, secret))
    headers = {"Authorization": basic_authorization(*pair), "Accept": "application/json"}
    form_fields = {"grant_type": "client_credentials"} | ({"scope": oauth.scope} if oauth.scope else {})
    timeout = aiohttp.ClientTimeout(_ANSWER_S)
    try:
        async with (
            aiohttp.ClientSession(
                connector=egress(pipe).connector(EgressKind.TOKEN, url), timeout=timeout
            ) as session,
            session.post(url, data=form_fields, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"it answers {answer.status}")
            body = b""
            while chunk := await answer.content.read(_ANSWER_BYTES):
                body += chunk
                if len(body) > _ANSWER_BYTES:
                    raise ValueError(f"its answer has more than {_ANSWER_BYTES} bytes")
            token_answer = json.loads(body)
        token, life_s = (
            str(token_answer["access_token"]),
            float(token_answer.get("expires_in", _DEFAULT_LIFE_S)),
        )
        if not token or not math.isfinite(life_s) or life_s <= 0:
            raise ValueError("its answer has no token with a life")
    except (
        *(OSError, aiohttp.ClientError, ValueError, KeyError, TypeError, AttributeError),
        *(OverflowError, RecursionError),
    ) as error:
        reason = str(error) if isinstance(error, OSError | aiohttp.ClientError | ValueError) else ""
        message = f"the token endpoint {url} gave no access token: {reason or type(error).__name__}"
        raise Misconfigured(message) from None
    return token, life_s
