"""Sessions of the people who signed in on a console, and links that open it signed in; kept in memory by each instance.

A session has the rights that its principal has now, and ends with its token. Its own time runs on the monotonic clock.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hifi.control.principals.principal import Principal, Principals
from hifi.runtime.clock import monotonic_s

SESSION_S: Final = 12 * 3600.0
LINK_S: Final = 3600.0
_MOST: Final = 1000
"""Sessions and links kept of each; more end the oldest."""
_BYTES: Final = 32


@dataclass(slots=True)
class _Secrets:
    """Random texts, each known for some time; only their hashes are kept."""

    life_s: float
    _kept: dict[bytes, tuple[float, str]] = field(default_factory=dict)
    """Hash of the text to the end of its time and the hash of the principal's token; oldest first."""

    def add(self, token_sha256: str, now_s: float) -> str:
        """A new text for a principal."""
        while len(self._kept) >= _MOST:
            del self._kept[next(iter(self._kept))]
        text = secrets.token_urlsafe(_BYTES)
        self._kept[_digest(text)] = (now_s + self.life_s, token_sha256)
        return text

    def token_sha256(self, text: str, now_s: float) -> str | None:
        """Hash of the principal's token; None: the text is unknown, or its time is over."""
        ends_s, token_sha256 = self._kept.get(_digest(text), (0.0, ""))
        return token_sha256 if now_s < ends_s else None

    def forget(self, text: str) -> None:
        """Forget a text."""
        self._kept.pop(_digest(text), None)


class Sessions:
    """Sessions and links of one instance.

    Args:
        principals: returns those that exist now.
    """

    def __init__(self, principals: Callable[[], Principals]) -> None:
        self._principals = principals
        self._sessions = _Secrets(SESSION_S)
        self._links = _Secrets(LINK_S)

    def begin(self, principal: Principal) -> str:
        """Begin a session of 12 hours; returns its secret."""
        return self._sessions.add(principal.token_sha256, monotonic_s())

    def end(self, session: str) -> None:
        """End a session."""
        self._sessions.forget(session)

    def principal(self, session: str, now_us: int) -> Principal | None:
        """The principal of a session; None: it has ended, or its token has."""
        token_sha256 = self._sessions.token_sha256(session, monotonic_s())
        return None if token_sha256 is None else self._principals().of_hash(token_sha256, now_us)

    def new_link(self, principal: Principal) -> str:
        """The code of a link that signs a principal in, once and within an hour."""
        return self._links.add(principal.token_sha256, monotonic_s())

    def redeem(self, code: str, now_us: int) -> Principal | None:
        """The principal whom a link signs in; None: it was used before, or its hour is over. It is used from now on."""
        token_sha256 = self._links.token_sha256(code, monotonic_s())
        self._links.forget(code)
        return None if token_sha256 is None else self._principals().of_hash(token_sha256, now_us)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
