"""The one cache: preloaded, local, refreshed in the background, the old value served meanwhile."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from hifi import log
from hifi.clock import monotonic_s
from hifi.errors import HifiError, Retryable

T = TypeVar("T")
logger = log.get(__name__)


class Cache(Generic[T]):
    """Holds what a loader gives. A failed refresh keeps the old value until it expires."""

    def __init__(
        self,
        name: str,
        loader: Callable[[], Awaitable[T]],
        *,
        refresh_s: float = 120,
        expire_s: float = 30 * 86400,
        changed: Callable[[T], None] | None = None,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """Nothing is loaded before `start`.

        Args:
            name: in logs and errors.
            loader: reads the whole value; may raise HifiError or OSError.
            refresh_s: age after which it is read again, seconds.
            expire_s: age after which an old value is no longer served, seconds.
            changed: called when a refresh gave a value unequal to the old one.
            clock: monotonic, seconds.
        """
        self.name = name
        self._loader = loader
        self._refresh_s = refresh_s
        self._expire_s = expire_s
        self._changed = changed
        self._clock = clock
        self._value: T | None = None
        self._loaded_s: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load for the first time, then refresh in the background.

        Raises:
            HifiError, OSError: what the loader raised; nothing runs then.
        """
        await self.refresh()
        self._task = asyncio.create_task(self._refresh_often())

    async def stop(self) -> None:
        """Stop refreshing."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def get(self) -> T:
        """The value, at most `expire_s` old.

        Raises:
            Retryable: it was never loaded, or has expired.
        """
        if self._loaded_s is None:
            raise Retryable(f"{self.name} has not been loaded yet")
        if self._clock() - self._loaded_s > self._expire_s:
            raise Retryable(f"{self.name} has expired: it could not be read again for {self._expire_s:.0f} s")
        return self._value  # type: ignore[return-value]

    async def refresh(self) -> None:
        """Load now."""
        value = await self._loader()
        different = self._loaded_s is not None and value != self._value
        self._value, self._loaded_s = value, self._clock()
        if different and self._changed is not None:
            self._changed(value)

    async def _refresh_often(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s)
            try:
                await self.refresh()
            except (HifiError, OSError) as error:
                logger.error("refresh-failed", cache=self.name, error=str(error))  # noqa: TRY400 - its words suffice
            except Exception:  # whatever a loader raises, the next refresh may succeed
                logger.exception("refresh-failed", cache=self.name)
