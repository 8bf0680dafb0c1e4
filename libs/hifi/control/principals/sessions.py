"""Sessions of the people who signed in on a console, and links that open it signed in; kept in memory by each instance.

A session of a token has the rights that its principal has now, and ends with the token; one of a person whom a provider
signed in keeps the rights of that moment, and ends when the provider signs the person out. Each ends when it is
revoked, for good: a person who is restored signs in anew. Its own time runs on the monotonic clock.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from hifi.control.principals.person import Person, ProviderSession
from hifi.control.principals.principal import Principal, Principals
from hifi.runtime.clock import monotonic_s

SESSION_S: Final = 12 * 3600.0
LINK_S: Final = 3600.0
_MOST: Final = 1000
"""Sessions and links kept of each; more end the oldest."""
_MOST_OF_OWNER: Final = 100
"""Of them those of one owner; more end its oldest, not those of others."""
_BYTES: Final = 32


class _SignedIn(NamedTuple):
    """The owner of a session that a provider began."""

    person: Person
    record_offset: int | None
    """Offset of the newest record about the person when it began; None: there was none."""


_Owner: TypeAlias = str | _SignedIn
"""Hash of a principal's token, or a person."""


@dataclass(slots=True)
class _Secrets:
    """Random texts, each known for some time; only their hashes are kept."""

    _entries: dict[bytes, tuple[float, _Owner]] = field(default_factory=dict)
    """Hash of the text to the end of its time and its owner; oldest first."""

    def add(self, owner: _Owner, ends_s: float) -> str:
        """A new text for a principal or a person."""
        name = _name(owner)
        own_digests = [digest for digest, (_, other) in self._entries.items() if _name(other) == name]
        if len(own_digests) >= _MOST_OF_OWNER:
            del self._entries[own_digests[0]]
        while len(self._entries) >= _MOST:
            del self._entries[next(iter(self._entries))]
        text = secrets.token_urlsafe(_BYTES)
        self._entries[_digest(text)] = (ends_s, owner)
        return text

    def owner(self, text: str, now_s: float) -> _Owner | None:
        """Whose the text is; None: the text is unknown, or its time is over."""
        ends_s, owner = self._entries.get(_digest(text), (0.0, ""))
        return owner if now_s < ends_s else None

    def forget(self, text: str) -> None:
        """Forget a text."""
        self._entries.pop(_digest(text), None)

    def forget_owners(self, belongs: Callable[[_Owner], bool]) -> int:
        """Forget the texts of some owners; returns how many."""
        digests = [digest for digest, (_, owner) in self._entries.items() if belongs(owner)]
        for digest in digests:
            del self._entries[digest]
        return len(digests)


class Sessions:
    """Sessions and links of one instance.

    Args:
        principals: returns those that exist now.
    """

    def __init__(self, principals: Callable[[], Principals]) -> None:
        self._principals = principals
        self._sessions = _Secrets()
        self._links = _Secrets()

    def begin(self, owner: Principal | Person) -> str:
        """Begin a session, of 12 hours for a principal; returns its secret."""
        if isinstance(owner, Person):
            signed_in = _SignedIn(owner, self._principals().person_offsets.get(owner.name))
            return self._sessions.add(signed_in, monotonic_s() + owner.life_s)
        return self._sessions.add(owner.token_sha256, monotonic_s() + SESSION_S)

    def end(self, session: str) -> None:
        """End a session."""
        self._sessions.forget(session)

    def end_at_provider(self, ended_session: ProviderSession) -> int:
        """End the sessions whose person the provider has signed out; returns how many."""
        return self._sessions.forget_owners(
            lambda owner: isinstance(owner, _SignedIn) and owner.person.at_provider.ends_with(ended_session)
        )

    def is_of_person(self, session: str) -> bool:
        """Whether a provider signed somebody in for a session that has not ended."""
        return isinstance(self._sessions.owner(session, monotonic_s()), _SignedIn)

    def principals(self, session: str, now_us: int) -> tuple[Principal, ...]:
        """The principals of a session; empty: it has ended, its token has, or the person was revoked meanwhile."""
        owner = self._sessions.owner(session, monotonic_s())
        if isinstance(owner, _SignedIn):
            return () if self._was_revoked(owner) else owner.person.principals
        principal = None if owner is None else self._principals().of_hash(owner, now_us)
        return () if principal is None else (principal,)

    def new_link(self, principal: Principal) -> str:
        """The code of a link that signs the principal of a token in, once and within an hour."""
        return self._links.add(principal.token_sha256, monotonic_s() + LINK_S)

    def redeem(self, code: str, now_us: int) -> Principal | None:
        """The principal whom a link signs in; None: it was used before, or its hour is over. It is used from now on."""
        owner = self._links.owner(code, monotonic_s())
        self._links.forget(code)
        return self._principals().of_hash(owner, now_us) if isinstance(owner, str) else None

    def _was_revoked(self, signed_in: _SignedIn) -> bool:
        """Whether the person was revoked since, restored or not: a record that compaction removed is an earlier one."""
        principals, name = self._principals(), signed_in.person.name
        newest_offset = principals.person_offsets.get(name, signed_in.record_offset)
        return name in principals.revoked or newest_offset != signed_in.record_offset


def _name(owner: _Owner) -> str:
    """What tells owners apart; the hash of a token has no colon."""
    return owner if isinstance(owner, str) else owner.person.name


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
