"""A cache that is loaded before use and refreshed in the background."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import HifiError, Retryable

T = TypeVar("T")
logger = log.get(__name__)


class Cache(Generic[T]):
    """A value that a loader reads. While a refresh runs or fails, the old value is served until it expires."""

    def __init__(
        self,
        name: str,
        loader: Callable[[], Awaitable[T]],
        *,
        refresh_s: float = 120,
        expire_s: float = 30 * 86400,
        changed: Callable[[T], None] | None = None,
        refreshed: Callable[[str | None], None] | None = None,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """Load nothing before `start`.

        Args:
            name: for logs and errors.
            loader: reads the whole value; may raise HifiError or OSError.
            refresh_s: time between two refreshes, seconds.
            expire_s: age from which a value is no longer served, seconds.
            changed: called with the new value when a refresh returned another one than before.
            refreshed: called after each refresh in the background, with the reason if it failed.
            clock: monotonic, seconds.
        """
        self.name = name
        self._loader = loader
        self._refresh_s = refresh_s
        self._expire_s = expire_s
        self._changed = changed
        self._refreshed = refreshed
        self._clock = clock
        self._value: T | None = None
        self._loaded_s: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the value, then refresh it in the background.

        Raises:
            HifiError, OSError: from the loader; the cache is not started then.
        """
        await self.refresh()
        self._task = asyncio.create_task(self._refresh_periodically())

    async def stop(self) -> None:
        """Stop refreshing."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def get(self) -> T:
        """The value, at most `expire_s` old.

        Raises:
            Retryable: it was not loaded yet, or has expired.
        """
        if self._loaded_s is None:
            raise Retryable(f"{self.name} has not been loaded yet")
        if self._clock() - self._loaded_s > self._expire_s:
            raise Retryable(f"{self.name} has expired: it could not be refreshed for {self._expire_s:.0f} s")
        return self._value  # type: ignore[return-value]

    async def refresh(self) -> None:
        """Load the value now.

        Raises:
            HifiError, OSError: from the loader; the old value is kept.
        """
        value = await self._loader()
        is_different = self._loaded_s is not None and value != self._value
        self._value, self._loaded_s = value, self._clock()
        if is_different and self._changed is not None:
            self._changed(value)

    async def _refresh_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s)
            reason = None
            try:
                await self.refresh()
            except (HifiError, OSError) as error:
                reason = str(error)
                logger.error("refresh-failed", cache=self.name, error=reason)  # noqa: TRY400 - no traceback needed
            except Exception as error:  # the next refresh may succeed, whatever a loader raises
                reason = f"{type(error).__name__}: {error}"
                logger.exception("refresh-failed", cache=self.name)
            if self._refreshed is not None:
                self._refreshed(reason)
