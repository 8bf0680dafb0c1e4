"""Requests that change a pipe: parameters, bodies, and `If-Match` with the declaration that a change replaces."""

import re
from typing import Any, Final

from starlette.requests import Request

from hifi.control.declaration import NONE, Origin
from hifi.runtime.http.problem import Problem
from hifi_manage.control_state import ControlState

_BODY_BYTES: Final = 1024 * 1024
_NO_DECLARATION: Final = "none"


def etag(number: int) -> dict[str, str]:
    """The header that names the newest declaration of a pipe."""
    return {"etag": f'"{_NO_DECLARATION if number == NONE else number}"'}


def replaced_number(request: Request, state: ControlState, name: str) -> int:
    """Number of the declaration that the request changes.

    Raises:
        Problem: 428, the request does not say it; 412, it is no longer the newest one.
    """
    number = state.declared.number(name)
    if request.headers.get("if-none-match", "").strip() == "*":
        if exists(state, name):
            raise changed_meanwhile(state, name)
        return number
    match = re.fullmatch(r'\s*"(none|[0-9]+)"\s*', request.headers.get("if-match", ""))
    if match is None:
        raise Problem(
            428,
            "Send `If-Match` with the ETag of the pipe that you have read, or `If-None-Match: *` for a new pipe.",
        )
    if match[1] != (_NO_DECLARATION if number == NONE else str(number)):
        raise changed_meanwhile(state, name)
    return number


def exists(state: ControlState, name: str) -> bool:
    """Whether a pipe is declared, or in force without a declaration, or held."""
    if name in state.declared.unreadable:
        return True
    newest = state.declared.newest.get(name)
    if newest is None:
        return state.registry.get(name) is not None or state.registry.held(name) is not None
    return newest.pipe is not None


def exists_or_in_force(state: ControlState, name: str) -> bool:
    """As `exists`; or a pipe is in force that was declared to be deleted: that waits, or somebody aborted it."""
    return exists(state, name) or state.registry.get(name) is not None


def changed_meanwhile(state: ControlState, name: str) -> Problem:
    """412: the pipe is not as the caller has read it."""
    newest = state.declared.newest.get(name)
    members: dict[str, Any] = {}
    detail = f"The pipe {name} is in force and was never declared."
    if newest is not None:
        members = {"number": newest.number, "author": newest.author, "at_us": newest.at_us}
        change = "deleted" if newest.pipe is None else "changed"
        detail = f"{newest.author} {change} {name} (declaration {newest.number})."
    return Problem(
        412,
        f"{detail} Get the pipe, apply your change to it and send it with its ETag.",
        list(etag(state.declared.number(name)).items()),
        members,
        "Changed meanwhile",
    )


async def body_of(request: Request) -> bytes:
    """The body of a request.

    Raises:
        Problem: 413, it is larger than 1 MiB.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES:
            raise Problem(413, f"The text of a pipe may have {_BODY_BYTES:,} bytes.")
    return bytes(body)


def origin_of(request: Request) -> Origin:
    """The origin of a change: the query parameter `origin`.

    Raises:
        Problem: 400, it is neither `api` nor `file`.
    """
    text = request.query_params.get("origin", Origin.API.value)
    if text not in list(Origin):
        raise Problem(400, "`origin` must be api or file.", title="Invalid parameter")
    return Origin(text)


def flag(request: Request, name: str) -> bool:
    """A query parameter that is `true` or `false`; false without it.

    Raises:
        Problem: 400, it is something else.
    """
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise Problem(400, f"`{name}` must be true or false.", title="Invalid parameter")
    return text == "true"
