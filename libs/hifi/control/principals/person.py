"""People whom an OpenID Connect provider signs in.

A person has one principal for each role, since the groups of a person may give the role of a viewer for the stream and
that of an operator for some pipes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hifi.control.principals.principal import Principal, Role


@dataclass(frozen=True, slots=True)
class ProviderSession:
    """A session at the provider, or with `session_id` empty all of a person.

    Attributes:
        subject: the person's id at the provider, the claim `sub`; empty: the session's is not told.
        session_id: the claim `sid`; empty: the provider tells none.
    """

    subject: str
    session_id: str = ""

    def ends_with(self, ended_session: "ProviderSession") -> bool:
        """Whether it has ended when the provider tells that another one has."""
        if ended_session.subject and ended_session.subject != self.subject:
            return False
        if ended_session.session_id and self.session_id:
            return ended_session.session_id == self.session_id
        return bool(ended_session.subject)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whom the provider signed in.

    Attributes:
        name: in the audit; begins with `oidc:`.
        principals: of the person, one for each role.
        life_s: of the session, seconds.
        at_provider: the provider's own session.
    """

    name: str
    principals: tuple[Principal, ...]
    life_s: float
    at_provider: ProviderSession


def fitting(principals: Sequence[Principal], role: Role, pipe: str | None) -> Principal | None:
    """The principal of a person with which to do something; None: there is none.

    Args:
        principals: of the person.
        role: that is needed.
        pipe: that it concerns; None: no certain one, so that the widest scope is taken before the highest role.
    """
    candidates = [
        principal
        for principal in principals
        if principal.role.includes(role) and (pipe is None or principal.sees(pipe))
    ]
    ranks = list(Role)
    return max(
        candidates,
        key=lambda principal: (pipe is None and principal.sees_all, ranks.index(principal.role)),
        default=None,
    )
