"""Write keys that are issued beside those in pipe files: hashes in the compacted topic `write-keys`."""

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final
from urllib.parse import urlsplit

import orjson
from typing_extensions import TypedDict

from hifi.record.record import Record
from hifi.record.typed_body import RecordBodyReader
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import Misconfigured

_PREFIX: Final = "hifi_wk_"
"""Lets scanners of repositories recognize a write key."""
_KEY_BYTES: Final = 32
_ID_DIGITS: Final = 12
_SHORTEST: Final = 32
MOST_ORIGINS: Final = 20


class IssuedKeyJson(TypedDict):
    """An issued write key as JSON, without its hash."""

    id: str
    pipe: str
    origins: list[str]
    expires_us: int | None
    author: str
    at_us: int
    last_used_us: int | None


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A write key of one pipe.

    Attributes:
        id: beginning of its hash; not a secret, and the same wherever the key is issued.
        pipe: to which it writes.
        sha256: of the key, hexadecimal.
        origins: pages that may send with it, such as `https://shop.example`; empty: programs.
        expires_us: when it expires, microseconds since 1970 UTC; None: never.
        author: who issued it.
        at_us: when, microseconds since 1970 UTC.
    """

    id: str
    pipe: str
    sha256: str
    origins: tuple[str, ...]
    expires_us: int | None
    author: str
    at_us: int

    def record(self) -> Record:
        """The record for the topic `write-keys`."""
        return Record(self.id.encode(), orjson.dumps(asdict(self)), [])

    def valid(self, now_us: int) -> bool:
        """Whether it has not expired."""
        return self.expires_us is None or now_us < self.expires_us

    def expiring(self, at_us: int) -> "IssuedKey":
        """The same, which expires at a time, or before if it did so already."""
        return replace(self, expires_us=at_us if self.expires_us is None else min(at_us, self.expires_us))

    def json(self, last_used_us: int | None = None) -> IssuedKeyJson:
        """JSON for people."""
        return {
            "id": self.id,
            "pipe": self.pipe,
            "origins": list(self.origins),
            "expires_us": self.expires_us,
            "author": self.author,
            "at_us": self.at_us,
            "last_used_us": last_used_us,
        }


_RECORD: Final = RecordBodyReader(IssuedKey, "a write key")


class IssuedKeys:
    """The keys that are issued. Filled from the topic `write-keys`."""

    def __init__(self) -> None:
        self._by_id: dict[str, IssuedKey] = {}
        self._by_hash: dict[str, IssuedKey] = {}
        self._revoked_at: dict[str, int] = {}

    @property
    def by_id(self) -> Mapping[str, IssuedKey]:
        """Id to key, also of expired ones."""
        return self._by_id

    def revoked_at(self, identity: str) -> int | None:
        """Offset of the newest record that revoked a key; None: none is read. The key may be issued again since."""
        return self._revoked_at.get(identity)

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take in a record. One that cannot be read revokes the key of its id.

        Raises:
            ValueError: it is not the record of a key.
        """
        identity = (key or b"").decode("utf-8", "replace")
        replaced_key = self._by_id.pop(identity, None)
        if replaced_key is not None:
            self._by_hash.pop(replaced_key.sha256, None)
        if value is None:
            self._revoked_at[identity] = offset
            return
        write_key = _RECORD.of_value(value)
        if write_key.id != identity or write_key.id != key_id(write_key.sha256):
            raise ValueError("not the record of a write key: its id is not that of its key")
        self._by_id[identity] = write_key
        self._by_hash[write_key.sha256] = write_key

    def of_hash(self, sha256: str, now_us: int) -> IssuedKey | None:
        """The key with a hash; None: there is none, or it has expired."""
        key = self._by_hash.get(sha256)
        return key if key is not None and key.valid(now_us) else None

    def of_pipe(self, pipe: str) -> list[IssuedKey]:
        """The keys of a pipe, oldest first."""
        return sorted(
            (key for key in self._by_id.values() if key.pipe == pipe),
            key=lambda key: (key.at_us, key.id),
        )

    def allows_origin(self, origin: str, now_us: int) -> bool:
        """Whether a page of an origin may send with any key."""
        return any(origin in key.origins and key.valid(now_us) for key in self._by_id.values())


def key_revocation(identity: str) -> Record:
    """The record that revokes the key of an id."""
    return Record(identity.encode(), None, [])


def new_key() -> str:
    """A write key that nobody can guess."""
    return _PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def key_id(sha256: str) -> str:
    """Id of the key with a hash."""
    return sha256[:_ID_DIGITS]


def issued_key(
    key: str, pipe: str, *, origins: Iterable[str], expires_us: int | None, author: str, at_us: int
) -> IssuedKey:
    """The record of a key, with its hash. A plain hash suffices, since keys are random.

    Args:
        key: at least 32 characters.
        pipe: to which it writes.
        origins: pages that may send with it; empty: programs.
        expires_us: when it expires, microseconds since 1970 UTC; None: never.
        author: who issues it.
        at_us: now, microseconds since 1970 UTC.

    Raises:
        Misconfigured: the key is short, or an origin is none.
    """
    if len(key) < _SHORTEST or not re.fullmatch(r"[\x21-\x7e]+", key):
        raise Misconfigured(f"a write key has at least {_SHORTEST} characters of ASCII without spaces")
    page_origins = tuple(sorted({read_origin(origin) for origin in origins}))
    if len(page_origins) > MOST_ORIGINS:
        raise Misconfigured(f"a write key may have {MOST_ORIGINS} origins")
    sha256 = hashlib.sha256(key.encode()).hexdigest()
    return IssuedKey(key_id(sha256), pipe, sha256, page_origins, expires_us, author, at_us)


def rotated(
    replaced_key: IssuedKey, key: str, overlap_s: float, author: str, at_us: int
) -> tuple[IssuedKey, IssuedKey]:
    """The key that replaces another one, and that one, which goes on for the overlap.

    Raises:
        Misconfigured: the key is short, or it is the one before.
    """
    replacement = issued_key(
        key, replaced_key.pipe, origins=replaced_key.origins, expires_us=None, author=author, at_us=at_us
    )
    if replacement.id == replaced_key.id:
        raise Misconfigured("the new key is the one before; a rotation needs another one")
    return replacement, replaced_key.expiring(at_us + int(overlap_s * MICROSECONDS))


def read_origin(text: str) -> str:
    """An origin as browsers send it.

    Raises:
        Misconfigured: it is none.
    """
    try:
        url = urlsplit(text)
        port = {("https", 443): "", ("http", 80): ""}.get((url.scheme, url.port or 0))
        if port is None:
            port = "" if url.port is None else f":{url.port}"
        host = url.hostname or ""
    except ValueError:
        url, host, port = urlsplit(""), "", ""
    extra_components = (url.path.rstrip("/"), url.query, url.fragment, url.username)
    if (
        url.scheme not in ("http", "https")
        or any(extra_components)
        or not re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:]+", host)
    ):
        raise Misconfigured(f"{text!r} is no origin; write for example https://shop.example")
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}{port}"
