"""A destination's requests need its secrets: read at the start, read again now and then, missed loudly."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, TypeAlias

from hifi import log
from hifi.cache import Cache
from hifi.errors import Misconfigured
from hifi.health import Health
from hifi.pipe.destination_request import Binding
from hifi.pipe.model import Destination, HeaderSecret

RETRY_S: Final = 5.0
"""A missing secret is looked for again after this, seconds."""

Secrets: TypeAlias = tuple[dict[str, str], str | None]

logger = log.get(__name__)


def read(destination: Destination) -> Secrets:
    """The destination's headers with their secrets, and the signing secret.

    Raises:
        Misconfigured: one is missing; the message names it.
    """
    headers = {
        name: value.prefix + value.read() if isinstance(value, HeaderSecret) else value
        for name, value in destination.headers.items()
    }
    return headers, destination.signing.read() if destination.signing else None


def has_secrets(destination: Destination) -> bool:
    """Whether there is anything to read."""
    return destination.signing is not None or any(
        isinstance(value, HeaderSecret) for value in destination.headers.values()
    )


class Equipment:
    """Keeps a lane able to make requests, or says why it is not."""

    def __init__(
        self,
        pipe: str,
        destination: Destination,
        refresh_s: float,
        health: Health,
        changed: Callable[[], None],
    ) -> None:
        """Read the secrets once, and again in the background where there are any.

        Args:
            pipe: name.
            destination: as declared.
            refresh_s: time after which secrets are read again, seconds.
            health: shows a missing secret.
            changed: called whenever `missing` changed.
        """
        self.binding: Binding | None = None
        """Makes the requests; None as long as that is impossible."""
        self.missing = ""
        """Why it is."""
        self._destination = destination
        self._health = health
        self._changed = changed
        self._about = {"pipe": pipe, "destination": destination.name}
        self._subject = f"destination {pipe}/{destination.name}"
        self._cache = Cache(self._subject, self._load, refresh_s=refresh_s, changed=self._use)
        self._task: asyncio.Task[None] | None = None
        try:
            self.binding = Binding(destination, *read(destination))
        except Misconfigured as error:
            self._miss(error)
        if self.binding is None or has_secrets(destination):
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Look no longer."""
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
                    self._miss(error)
            await asyncio.sleep(RETRY_S)
        self._use(self._cache.get())
        if self.missing:
            self.missing = ""
            logger.info("destination-usable", **self._about)
            self._health.warn(self._subject, None)
            self._changed()

    def _miss(self, error: Misconfigured) -> None:
        logger.error("destination-unusable", **self._about, error=str(error))
        self._health.warn(self._subject, str(error))
        self.missing = str(error)
        if self._task is not None:
            self._changed()

    async def _load(self) -> Secrets:
        secrets = read(self._destination)
        Binding(self._destination, *secrets)  # what cannot be used is refused here, so the old one stays
        return secrets

    def _use(self, secrets: Secrets) -> None:
        self.binding = Binding(self._destination, *secrets)
