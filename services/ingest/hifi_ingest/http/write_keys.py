"""Write keys: who may write to which pipe. Only digests are held, and looked up by digest.

Finding a key by its SHA-256 in a dict takes no time that depends on how much of a guess is right: a guess changes the
whole digest.
"""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Mapping

from hifi import log
from hifi.cache import Cache
from hifi.errors import Misconfigured
from hifi.health import Health
from hifi.pipe.registry import PipeRegistry

Digests = Mapping[str, frozenset[str]]
"""Hex SHA-256 of a key to the names of the pipes that it opens."""

logger = log.get(__name__)


class WriteKeys:
    """The keys of all pipes in force, read again after each change of a pipe and every so often."""

    def __init__(self, registry: PipeRegistry, health: Health, refresh_s: float) -> None:
        self._registry = registry
        self._health = health
        self._unreadable: dict[str, str] = {}
        self._cache: Cache[Digests] = Cache("write keys", self._load, refresh_s=refresh_s)
        self._refreshing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Read all keys, and from now on follow the registry."""
        await self._cache.start()
        self._registry.on_change(self._changed)

    async def stop(self) -> None:
        """Read no more."""
        await self._cache.stop()

    def pipes(self, authorization: bytes | None) -> frozenset[str]:
        """The pipes that the key in a header Authorization opens; none: it opens nothing."""
        key = None if authorization is None else presented(authorization)
        if key is None:
            return frozenset()
        return self._cache.get().get(hashlib.sha256(key).hexdigest(), frozenset())

    def _changed(self) -> None:
        task = asyncio.ensure_future(self._cache.refresh())
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _load(self) -> Digests:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Digests:
        found: dict[str, set[str]] = {}
        unreadable: dict[str, str] = {}
        for known in self._registry.all():
            name = known.pipe.pipe
            for index, key in enumerate(known.pipe.source.keys):
                try:
                    found.setdefault(key.digest(), set()).add(name)
                except Misconfigured as error:
                    unreadable[f"write key {index} of {name}"] = str(error)
        self._tell(unreadable)
        return {digest: frozenset(names) for digest, names in found.items()}

    def _tell(self, unreadable: dict[str, str]) -> None:
        for subject, reason in unreadable.items():
            if self._unreadable.get(subject) != reason:
                logger.error("write-key-unreadable", key=subject, error=reason)
            self._health.warn(subject, reason)
        for subject in self._unreadable.keys() - unreadable.keys():
            logger.info("write-key-readable", key=subject)
            self._health.warn(subject, None)
        self._unreadable = unreadable


def presented(authorization: bytes) -> bytes | None:
    """The key in a header Authorization: a Bearer token (RFC 6750) or the user of Basic (RFC 7617)."""
    scheme, _, credentials = authorization.strip().partition(b" ")
    scheme = scheme.lower()
    credentials = credentials.strip()
    if scheme == b"bearer":
        return credentials or None
    if scheme == b"basic":
        try:
            user, _, _ = base64.b64decode(credentials, validate=True).partition(b":")
        except binascii.Error:
            return None
        return user or None
    return None
