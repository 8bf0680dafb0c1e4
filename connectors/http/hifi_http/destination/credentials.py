"""The credentials of a destination's requests: read at start, refreshed periodically, reported when missing."""

import asyncio
import contextlib
import traceback
from collections.abc import Callable
from typing import Final, NamedTuple

from hifi.pipe.limit_check import destination_refusals, require_none
from hifi.pipe.limits import pipe_limits
from hifi.pipe.named_secrets import secrets
from hifi.pipe.secret import Secret
from hifi.runtime import log
from hifi.runtime.cache import Cache
from hifi.runtime.egress import host_and_port
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_http.declaration import HeaderSecret, HttpDestination
from hifi_http.destination.access_token import AccessToken
from hifi_http.destination.request_template import RequestTemplate
from hifi_http.destination.route import Proxy, Route, TlsTexts, basic_authorization, tls_context
from hifi_http.destination.shared import shared

RETRY_S: Final = 5.0
"""Time between two attempts to read a missing secret, seconds."""


class Secrets(NamedTuple):
    """Values of a destination's secrets at a time.

    Attributes:
        headers: of each request.
        signing: keys of signatures.
        tls: PEM texts; None: none is declared.
        proxy_password: empty: there is none.
        client_secret: of OAuth 2.0; empty: there is none.
    """

    headers: dict[str, str]
    signing: list[str]
    tls: TlsTexts | None
    proxy_password: str
    client_secret: str


logger = log.get(__name__)


def read_secrets(pipe: str, destination: HttpDestination) -> Secrets:
    """Read the headers of a pipe's destination, with their secrets filled in, and its other secrets.

    Raises:
        Misconfigured: a secret is missing, or something of the destination is not allowed; the message names it.
    """
    require_none(destination_refusals(pipe, destination, pipe_limits()))
    headers = {
        name: value.prefix + value.read() if isinstance(value, HeaderSecret) else value
        for name, value in destination.headers.items()
    }
    signing = [destination.signing, *destination.signing_also] if destination.signing else []
    tls = destination.tls
    tls_texts = None if tls is None else TlsTexts(_read(tls.ca), _read(tls.certificate), _read(tls.key))
    password = "" if destination.proxy is None else _read(destination.proxy.password)
    client_secret = "" if destination.oauth is None else destination.oauth.client_secret.read()
    return Secrets(headers, [secret.read() for secret in signing], tls_texts, password, client_secret)


def _read(secret: Secret | None) -> str:
    return "" if secret is None else secret.read()


class Credentials:
    """Provides the request template and the route of a destination, or the reason why there is none."""

    def __init__(
        self,
        pipe: str,
        destination: HttpDestination,
        refresh_s: float,
        health: Health,
        *,
        on_change: Callable[[], None],
        use_route: Callable[[Route], None],
    ) -> None:
        """Read the secrets now, and again in the background if there are any.

        Args:
            pipe: name.
            destination: as declared.
            refresh_s: time between two reads of the secrets, seconds.
            health: shows a missing secret.
            on_change: called whenever `missing` changes, and when the first template is there.
            use_route: called with the route of new connections.
        """
        self.template: RequestTemplate | None = None
        """Makes the requests; None while a secret is missing, or the first access token."""
        self.missing = ""
        """Which secret is missing; empty: none."""
        self._pipe = pipe
        self._destination = destination
        self._health = health
        self._report = on_change
        self._use_route = use_route
        self._log_fields = {"pipe": pipe, "destination": destination.name}
        self._subject = f"destination {pipe}/{destination.name}"
        self._cache = Cache(self._subject, self._load, refresh_s=refresh_s, changed=self._use)
        self._task: asyncio.Task[None] | None = None
        self._secrets: Secrets | None = None
        self._token: AccessToken | None = None
        try:
            self._use(self._usable_secrets())
        except Misconfigured as error:
            self._set_missing(str(error))
        if self.missing or next(secrets(destination), None) is not None:
            self._task = asyncio.create_task(self._run())

    async def renew(self, template: RequestTemplate) -> bool:
        """Replace the access token of a template that the destination answered with 401; returns whether it did."""
        if self._token is None or not await self._token.renew(template.token):
            return False
        return self.template is not None

    async def stop(self) -> None:
        """Stop refreshing."""
        if self._token is not None:
            await self._token.stop()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._cache.stop()
        self._health.warn(self._subject, None)

    async def _run(self) -> None:
        while True:
            try:
                await self._cache.start()
                break
            except Misconfigured as error:
                self._set_missing(str(error))
            await asyncio.sleep(RETRY_S)
        self._use(self._cache.get())

    def _set_missing(self, missing: str) -> None:
        """Show what is missing, or that nothing is."""
        if missing == self.missing:
            return
        self.missing = missing
        self._health.warn(self._subject, missing or None)
        if missing:
            logger.error("credentials-missing", **self._log_fields, error=missing)
        else:
            logger.info("credentials-found", **self._log_fields)
        if self._task is not None or self._token is not None:
            self._report()

    async def _load(self) -> Secrets:
        return self._usable_secrets()

    def _usable_secrets(self) -> Secrets:
        """Read the secrets, and refuse unusable ones here, so that the old ones stay.

        Raises:
            Misconfigured: a secret is missing or unusable.
        """
        try:
            current = read_secrets(self._pipe, self._destination)
            RequestTemplate(self._destination, current.headers, current.signing)
            self._route(current)
        except Misconfigured:
            raise
        except Exception as error:  # noqa: BLE001 - only this destination is without credentials
            error_name = type(error).__name__
            # Without the error's message, which may quote a secret.
            frames = "".join(traceback.format_tb(error.__traceback__))
            logger.error("credentials-unusable", error=error_name, frames=frames, **self._log_fields)  # noqa: TRY400
            raise Misconfigured(f"its credentials cannot be used: {error_name}; see the log") from None
        return current

    def _use(self, current: Secrets) -> None:
        if self._secrets is None or (current.tls, current.proxy_password) != (
            self._secrets.tls,
            self._secrets.proxy_password,
        ):
            self._use_route(self._route(current))
        self._secrets = current
        # Not before: a secret that the pipe may not have must not go to the token endpoint.
        if self._token is None and self._destination.oauth is not None:
            self._token = AccessToken(
                self._pipe,
                self._destination.oauth,
                self._client_secret,
                self._make_template,
                destination=self._destination.name,
            )
        self._make_template()

    def _client_secret(self) -> str:
        assert self._secrets is not None
        return self._secrets.client_secret

    def _make_template(self) -> None:
        assert self._secrets is not None
        headers, signing, *_ = self._secrets
        token = "" if self._token is None else self._token.value
        if self._destination.oauth is not None and not token:
            self.template = None
            self._set_missing("" if self._token is None else self._token.error)
            return
        is_first = self.template is None
        try:
            self.template = RequestTemplate(self._destination, headers, signing, token)
        except Misconfigured as error:  # a token that no header can have
            self.template = None
            self._set_missing(str(error))
            return
        if self.missing:
            self._set_missing("")
        elif is_first and self._token is not None:
            self._report()

    def _route(self, current: Secrets) -> Route:
        tls = None
        if self._destination.url.scheme == "https":
            tls = shared().tls if current.tls is None else tls_context(current.tls)
        proxy_settings = self._destination.proxy
        if proxy_settings is None:
            return Route(tls)
        host, port = host_and_port(str(proxy_settings.url))
        authorization = (
            ""
            if proxy_settings.user is None
            else basic_authorization(proxy_settings.user, current.proxy_password)
        )
        return Route(tls, Proxy(host, port, authorization))
