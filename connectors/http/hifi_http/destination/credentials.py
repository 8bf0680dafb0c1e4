"""The credentials of a destination's requests: read at start, refreshed periodically, reported when missing."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, TypeAlias

from hifi.pipe.limit_check import destination_refusals, require_none
from hifi.pipe.limits import pipe_limits
from hifi.runtime import log
from hifi.runtime.cache import Cache
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_http.declaration import HeaderSecret, HttpDestination
from hifi_http.destination.request_template import RequestTemplate

RETRY_S: Final = 5.0
"""Time between two attempts to read a missing secret, seconds."""

Secrets: TypeAlias = tuple[dict[str, str], list[str]]

logger = log.get(__name__)


def read_secrets(pipe: str, destination: HttpDestination) -> Secrets:
    """Read the headers of a pipe's destination, with their secrets filled in, and its signing secrets.

    Raises:
        Misconfigured: a secret is missing, or something of the destination is not allowed; the message names it.
    """
    require_none(destination_refusals(pipe, destination, pipe_limits()))
    headers = {
        name: value.prefix + value.read() if isinstance(value, HeaderSecret) else value
        for name, value in destination.headers.items()
    }
    signing = [destination.signing, *destination.signing_also] if destination.signing else []
    return headers, [secret.read() for secret in signing]


def has_secrets(destination: HttpDestination) -> bool:
    """Whether the destination declares any secret."""
    return destination.signing is not None or any(
        isinstance(value, HeaderSecret) for value in destination.headers.values()
    )


class Credentials:
    """Provides the request template of a destination, or the reason why there is none."""

    def __init__(
        self,
        pipe: str,
        destination: HttpDestination,
        refresh_s: float,
        health: Health,
        changed: Callable[[], None],
    ) -> None:
        """Read the secrets now, and again in the background if there are any.

        Args:
            pipe: name.
            destination: as declared.
            refresh_s: time between two reads of the secrets, seconds.
            health: shows a missing secret.
            changed: called whenever `missing` changes.
        """
        self.template: RequestTemplate | None = None
        """Makes the requests; None while a secret is missing."""
        self.missing = ""
        """Which secret is missing; empty: none."""
        self._pipe = pipe
        self._destination = destination
        self._health = health
        self._changed = changed
        self._log_fields = {"pipe": pipe, "destination": destination.name}
        self._subject = f"destination {pipe}/{destination.name}"
        self._cache = Cache(self._subject, self._load, refresh_s=refresh_s, changed=self._use)
        self._task: asyncio.Task[None] | None = None
        try:
            self.template = RequestTemplate(destination, *read_secrets(pipe, destination))
        except Misconfigured as error:
            self._report_missing(error)
        if self.template is None or has_secrets(destination):
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop refreshing."""
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
                if self.missing != str(error):
                    self._report_missing(error)
            await asyncio.sleep(RETRY_S)
        self._use(self._cache.get())
        if self.missing:
            self.missing = ""
            logger.info("credentials-found", **self._log_fields)
            self._health.warn(self._subject, None)
            self._changed()

    def _report_missing(self, error: Misconfigured) -> None:
        logger.error("credentials-missing", **self._log_fields, error=str(error))
        self._health.warn(self._subject, str(error))
        self.missing = str(error)
        if self._task is not None:
            self._changed()

    async def _load(self) -> Secrets:
        secrets = read_secrets(self._pipe, self._destination)
        RequestTemplate(
            self._destination, *secrets
        )  # refuse unusable secrets here, so that the old ones stay
        return secrets

    def _use(self, secrets: Secrets) -> None:
        self.template = RequestTemplate(self._destination, *secrets)
