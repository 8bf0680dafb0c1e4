"""Who may send a request to observe or manage: the principal of its bearer token, or of the session in its cookie."""

from dataclasses import dataclass
from typing import Final, Protocol

from starlette.requests import Request

from hifi.control.principals.oidc.refusals import NotAllowed
from hifi.control.principals.person import Person, fitting
from hifi.control.principals.principal import Principal, Principals, Role
from hifi.control.principals.sessions import Sessions
from hifi.kafka.last_uses import LastUses
from hifi.runtime.clock import now_us
from hifi.runtime.http.problem import Problem, retry_later

_SAFE: Final = frozenset({"GET", "HEAD"})


class PrincipalsCopy(Protocol):
    """A service's own copy of the topic `principals`."""

    @property
    def principals(self) -> Principals:
        """The principals that were read last."""

    @property
    def read(self) -> bool:
        """Whether the topic was ever read."""

    @property
    def fresh(self) -> bool:
        """Whether it was read within the last seconds, so that no revocation is missing."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The requirement of a route.

    Attributes:
        role: of the principal.
        fresh: whether the principals must have been read lately.
    """

    role: Role
    fresh: bool = True


class Gate:
    """Lets principals in.

    Args:
        copy: of the principals.
        uses: notes who is let in; None: nobody reads it.
    """

    def __init__(self, copy: PrincipalsCopy, uses: LastUses | None = None) -> None:
        self._copy = copy
        self._uses = uses or LastUses()
        self.sessions = Sessions(lambda: copy.principals)

    def principal(self, request: Request, requirement: Needs) -> Principal:
        """The principal of a request.

        Raises:
            Problem: 401, there is none; 403, it may not do this, or a page of another site may have sent the request;
                503, the principals could not be read, or not lately.
        """
        self.require_read(fresh=requirement.fresh)
        principals = self.senders(request)
        if not principals:
            raise Problem(
                401,
                "Send the token of a principal in the header `Authorization: Bearer TOKEN`. It may have expired or "
                "been revoked; `hifi principal create` makes a new one.",
                [("www-authenticate", "Bearer")],
                title="Token required",
            )
        principal = fitting(principals, requirement.role, request.path_params.get("pipe"))
        if principals[0].token_sha256:
            self._uses.note(principals[0].name, now_us())
        if principal is not None:
            return principal
        name = principals[0].name
        holders_of_role = [principal for principal in principals if principal.role.includes(requirement.role)]
        if not holders_of_role:
            roles = ", ".join(principal.role.value for principal in principals)
            raise Problem(403, f"{name} has the role {roles}; this needs the role {requirement.role.value}.")
        pipes = sorted({pipe for principal in holders_of_role for pipe in principal.pipes})
        raise Problem(403, f"{name} may use the pipes {', '.join(pipes)} only.")

    def require_read(self, *, fresh: bool) -> None:
        """Check that the principals were read.

        Raises:
            Problem: 503, they were not, or not lately.
        """
        if not self._copy.read or (fresh and not self._copy.fresh):
            raise retry_later("The topic of the principals cannot be read now. Try again.")

    def senders(self, request: Request) -> tuple[Principal, ...]:
        """The principal of the bearer token, or those of the session: a person has one for each role; empty: none.

        Raises:
            Problem: 403, a change with a session does not say from which page it comes.
        """
        if (header := request.headers.get("authorization")) is not None:
            principal = self.of_token(bearer(header))
            return () if principal is None else (principal,)
        session = request.cookies.get(cookie_name(request))
        principals = self.sessions.principals(session, now_us()) if session else ()
        if principals and request.method not in _SAFE and "origin" not in request.headers:
            raise Problem(403, "A change with a session needs the header `Origin`.", title="Wrong origin")
        return principals

    def require_not_revoked(self, person: Person) -> None:
        """Check that somebody whom a provider signed in was not revoked.

        Raises:
            NotAllowed: the person was.
        """
        if person.name in self._copy.principals.revoked:
            raise NotAllowed(f"{person.name} was revoked here")

    def of_token(self, token: str) -> Principal | None:
        """The principal of a token; None: there is none, or the token has expired."""
        return self._copy.principals.of_token(token, now_us()) if token else None


def bearer(header: str) -> str:
    """The token in a header `Authorization`; empty: it has none."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def cookie_name(request: Request) -> str:
    """Name of the session's cookie. It names the port, since browsers send cookies to all ports of a host."""
    return f"hifi-session-{request.url.port or 'default'}"
