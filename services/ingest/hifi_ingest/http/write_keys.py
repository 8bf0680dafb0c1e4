"""Know write keys: which key, of a pipe's file or issued, may write to which pipes; `app.py` answers the others.

Only SHA-256 digests are kept and compared. The time of a lookup reveals nothing about a key, since a guess that is
nearly right has an entirely different digest.
"""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from hifi.pipe.issued_key import key_id
from hifi.pipe.limit_check import require_granted
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.shared_keys import shared_with
from hifi.runtime import log
from hifi.runtime.cache import Cache
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_ingest.admission.quotas import KeyQuota
from hifi_ingest.http.issued_keys import FollowedKeys


class Grant(NamedTuple):
    """The permissions of a key in a pipe."""

    key: str
    """Id of the key (`hifi.pipe.issued_key.key_id`)."""
    quota: KeyQuota | None = None
    origins: tuple[str, ...] = ()
    """Pages that may send with the key; empty: programs, and pages of any origin."""


PipesByKey = Mapping[str, Grant]
"""Names of the pipes that a key may write to."""
KeysByDigest = Mapping[str, PipesByKey]
"""SHA-256 of a key (hex) to its pipes."""

_NO_PIPES: Final[PipesByKey] = {}
_NAME_DIGITS: Final = 8
_EVENTS: Final = "/v1/events"
"""The path on which the key determines the pipe."""

logger = log.get(__name__)


class WriteKeys:
    """The keys of all published pipes. Keys are read again when a pipe changes and after `refresh_s` seconds.

    Args:
        registry: of the pipes.
        issued: keys that were issued.
        health: gets a warning for each key that cannot be read, or that two pipes have.
        refresh_s: seconds.
    """

    def __init__(
        self, registry: PipeRegistry, issued_keys: FollowedKeys, health: Health, refresh_s: float
    ) -> None:
        self._registry = registry
        self._issued = issued_keys
        self._health = health
        self._problems: dict[str, str] = {}
        self._cache: Cache[KeysByDigest] = Cache("write keys", self._load, refresh_s=refresh_s)
        self._refreshing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Read all keys and follow the registry."""
        await self._cache.start()
        self._registry.on_change(self._on_registry_change)

    async def stop(self) -> None:
        """Stop reading."""
        await self._cache.stop()

    def pipes(self, authorization: bytes | None) -> PipesByKey:
        """The pipes that the key in an Authorization header may write to; empty if it is unknown."""
        key = None if authorization is None else key_from_header(authorization)
        if key is None:
            return _NO_PIPES
        digest = hashlib.sha256(key).hexdigest()
        declared_pipes = self._cache.get().get(digest, _NO_PIPES)
        issued_key = self._issued.of_hash(digest)
        if issued_key is None or issued_key.pipe in declared_pipes:
            return declared_pipes
        return {**declared_pipes, issued_key.pipe: Grant(issued_key.id, origins=issued_key.origins)}

    def allows_origin(self, origin: bytes) -> bool:
        """Whether a page of an origin may send with any key."""
        return self._issued.allows_origin(origin)

    def _on_registry_change(self) -> None:
        task = asyncio.ensure_future(self._cache.refresh())
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _load(self) -> KeysByDigest:
        return await asyncio.to_thread(self._read)

    def _read(self) -> KeysByDigest:
        pipes_by_digest: dict[str, dict[str, Grant]] = {}
        declarations: dict[str, list[tuple[str, int]]] = {}
        problems: dict[str, str] = {}
        for revision in self._registry.all():
            name = revision.pipe.pipe
            for index, key in enumerate(revision.pipe.source.keys):
                try:
                    require_granted(name, key)
                    digest = key.digest()
                except Misconfigured as error:
                    problems[_subject(name, index)] = str(error)
                except Exception as error:
                    logger.exception("write-key-unreadable", pipe=name)
                    problems[_subject(name, index)] = (
                        f"ingest failed on it ({type(error).__name__}); see its log for the cause"
                    )
                else:
                    quota = KeyQuota(digest[:_NAME_DIGITS], key.quota) if key.quota else None
                    pipes_by_digest.setdefault(digest, {})[name] = Grant(key_id(digest), quota)
                    declarations.setdefault(digest, []).append((name, index))
        for digest, pipes in pipes_by_digest.items():
            for name, index in declarations[digest] if len(pipes) > 1 else ():
                other_pipe = next(pipe for pipe in pipes if pipe != name)
                problems[_subject(name, index)] = (
                    f"{shared_with(other_pipe)}. {_EVENTS} refuses it until then"
                )
        self._report(problems)
        return pipes_by_digest

    def _report(self, problems: dict[str, str]) -> None:
        for subject, reason in problems.items():
            if self._problems.get(subject) != reason:
                logger.error("write-key-problem", key=subject, error=reason)
            self._health.warn(subject, reason)
        for subject in self._problems.keys() - problems.keys():
            logger.info("write-key-mended", key=subject)
            self._health.warn(subject, None)
        self._problems = problems


def _subject(pipe: str, index: int) -> str:
    return f"write key {index} of {pipe}"


def key_from_header(authorization: bytes) -> bytes | None:
    """The key in an Authorization header: a Bearer token (RFC 6750) or the user name of Basic (RFC 7617); else None."""
    scheme, _, credentials = authorization.strip().partition(b" ")
    scheme = scheme.lower()
    credentials = credentials.strip()
    if scheme == b"bearer":
        return credentials or None
    if scheme == b"basic":
        try:
            user_name, _, _ = base64.b64decode(credentials, validate=True).partition(b":")
        except binascii.Error:
            return None
        return user_name or None
    return None
