"""Who may do what in the schema registry. Confluent's clients send the token of a principal as a password."""

import base64
import binascii
from collections.abc import Iterable
from typing import Final

from starlette.requests import Request

from hifi.control.principals.principal import Principal, Role
from hifi.runtime.clock import now_us
from hifi.runtime.http.problem import Problem, retry_later
from hifi_manage.control_state import ControlState

_CHALLENGES: Final = [("www-authenticate", 'Basic realm="hifi", Bearer')]


def registry_principal(request: Request, state: ControlState, role: Role) -> Principal:
    """The principal of the request: its name and its token as basic authentication, or the token as bearer.

    Raises:
        Problem: 401, there is none; 403, the principal may not do this; 503, the principals could not be read lately.
    """
    if not state.fresh:
        raise retry_later("The control plane's topics cannot be read now. Try again.")
    name, token = _credentials(request.headers.get("authorization", ""))
    principal = state.principals.of_token(token, now_us()) if token else None
    if principal is None or name not in (None, principal.name):
        raise Problem(
            401,
            "Send the name of a principal as user and its token as password, or the token as bearer token. It may have"
            " expired or been revoked.",
            _CHALLENGES,
        )
    state.uses.note(principal.name, now_us())
    if not principal.role.includes(role):
        raise Problem(
            403, f"{principal.name} has the role {principal.role.value}; this needs the role {role.value}."
        )
    return principal


def check_scope(principal: Principal, subject: str | None, pipes: Iterable[str]) -> None:
    """Check that a principal may change a subject, or what holds for all (None).

    Args:
        principal: who changes it.
        subject: name; that of the pipe with the longest name with which it begins.
        pipes: all that are declared.

    Raises:
        Problem: 403, it may not.
    """
    if not principal.pipes:
        return
    if subject is not None:
        names = {*pipes, *principal.pipes}
        owner = max((name for name in names if _is_of(subject, name)), key=len, default=None)
        if owner in principal.pipes:
            return
    raise Problem(
        403,
        f"{principal.name} may change the subjects of the pipes {', '.join(principal.pipes)} only: those that are named"
        " as the pipe, or begin with its name and `-` or `.`.",
    )


def _is_of(subject: str, pipe: str) -> bool:
    return subject == pipe or subject.startswith((f"{pipe}-", f"{pipe}."))


def _credentials(header: str) -> tuple[str | None, str]:
    """Name of the user, None if there is none, and token; empty if the header has none."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() == "bearer":
        return None, text.strip()
    if scheme.lower() != "basic":
        return None, ""
    try:
        user, _, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None, ""
    return user, password
