"""Who may send a request to observe or manage: the principal of its bearer token, or of the session in its cookie."""

from dataclasses import dataclass
from typing import Final, Protocol

from starlette.requests import Request

from hifi.control.principals.principal import Principal, Principals, Role
from hifi.control.principals.sessions import Sessions
from hifi.runtime.clock import now_us
from hifi.runtime.http.problem import Problem, retry_later

_SAFE: Final = frozenset({"GET", "HEAD"})


class PrincipalsCopy(Protocol):
    """A service's own copy of the topic `principals`."""

    @property
    def principals(self) -> Principals:
        """What was read last."""

    @property
    def read(self) -> bool:
        """Whether the topic was ever read."""

    @property
    def fresh(self) -> bool:
        """Whether it was read within the last seconds, so that no revocation is missing."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a route needs.

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
    """

    def __init__(self, copy: PrincipalsCopy) -> None:
        self._copy = copy
        self.sessions = Sessions(lambda: copy.principals)

    def principal(self, request: Request, needs: Needs) -> Principal:
        """The principal of a request.

        Raises:
            Problem: 401, there is none; 403, it may not do this, or a page of another site may have sent the request;
                503, the principals could not be read, or not lately.
        """
        self.require_read(fresh=needs.fresh)
        principal = self.sender(request)
        if principal is None:
            raise Problem(
                401,
                "Send the token of a principal in the header `Authorization: Bearer TOKEN`. It may have expired or "
                "been revoked; `hifi principal create` makes a new one.",
                [("www-authenticate", "Bearer")],
                title="Token required",
            )
        if not principal.role.includes(needs.role):
            raise Problem(
                403,
                f"{principal.name} has the role {principal.role.value}; this needs the role {needs.role.value}.",
            )
        pipe = request.path_params.get("pipe")
        if pipe is not None and not principal.sees(pipe):
            raise Problem(403, f"{principal.name} may use the pipes {', '.join(principal.pipes)} only.")
        return principal

    def require_read(self, *, fresh: bool) -> None:
        """Check that the principals were read.

        Raises:
            Problem: 503, they were not, or not lately.
        """
        if not self._copy.read or (fresh and not self._copy.fresh):
            raise retry_later("The topic of the principals cannot be read now. Try again.")

    def sender(self, request: Request) -> Principal | None:
        """The principal of the bearer token, or of the session; None: there is none.

        Raises:
            Problem: 403, a change with a session does not say from which page it comes.
        """
        if (header := request.headers.get("authorization")) is not None:
            return self.of_token(bearer(header))
        session = request.cookies.get(cookie_name(request))
        principal = self.sessions.principal(session, now_us()) if session else None
        if principal is not None and request.method not in _SAFE and "origin" not in request.headers:
            raise Problem(403, "A change with a session needs the header `Origin`.", title="Wrong origin")
        return principal

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
