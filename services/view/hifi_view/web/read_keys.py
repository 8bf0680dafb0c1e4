"""The keys that views declare, and the views that each key opens.

Views are read by programs of users, as pipes are written by them, so they have keys of their own as pipes do, not the
principals of people who run the mesh: a key opens its views and nothing else, and this service needs no right to read
principals or to write an audit. Only SHA-256 digests are kept and compared.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence

from hifi.pipe.limit_check import require_granted
from hifi.pipe.view import View
from hifi.runtime import log
from hifi.runtime.cache import Cache
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health

Names = frozenset[str]
logger = log.get(__name__)


class ReadKeys:
    """The keys of all views, read again each minute.

    Args:
        views: as they are declared.
        health: gets a warning for each key that cannot be read.
        refresh_s: time between readings, seconds.
    """

    def __init__(self, views: Sequence[View], health: Health, refresh_s: float = 60) -> None:
        self._views = views
        self._health = health
        self._cache: Cache[Mapping[str, Names]] = Cache("read keys", self._load, refresh_s=refresh_s)
        self._names_by_digest: Mapping[str, Names] = {}

    async def start(self) -> None:
        """Read all keys."""
        await self._cache.start()

    async def stop(self) -> None:
        """Stop reading."""
        await self._cache.stop()

    def views_of(self, authorization: str | None) -> Names:
        """Names of the views that an Authorization header opens; empty if it opens none."""
        scheme, _, key = (authorization or "").strip().partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            return frozenset()
        return self._names_by_digest.get(hashlib.sha256(key.encode("latin-1")).hexdigest(), frozenset())

    async def _load(self) -> Mapping[str, Names]:
        self._names_by_digest = await asyncio.to_thread(self._read)
        return self._names_by_digest

    def _read(self) -> Mapping[str, Names]:
        names_by_digest: dict[str, Names] = {}
        for view in self._views:
            for index, key in enumerate(view.serve.keys):
                subject = f"read key {index} of {view.view}"
                try:
                    require_granted(view.from_.pipe, key)
                    digest = key.digest()
                except Misconfigured as error:
                    logger.error("read-key-unreadable", key=subject, error=str(error))  # noqa: TRY400 - the declaration is at fault
                    self._health.warn(subject, str(error))
                else:
                    self._health.warn(subject, None)
                    names_by_digest[digest] = names_by_digest.get(digest, frozenset()) | {view.view}
        return names_by_digest
