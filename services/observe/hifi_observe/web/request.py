"""Reading what a caller sent."""

import hmac
from datetime import UTC, datetime

from starlette.requests import Request

from hifi.http.problem import Problem


def minute_of(text: str) -> int:
    """Minutes since 1970 UTC, from that number or a time.

    Raises:
        Problem: it is neither.
    """
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Problem(
            400,
            f"{text!r} is neither minutes since 1970 UTC nor a time such as 2026-11-21T10:04",
            title="Not a minute",
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() // 60)


def whole(request: Request, name: str, default: int, most: int) -> int:
    """A query parameter that is a whole number from 1 to `most`.

    Raises:
        Problem: it is not.
    """
    text = request.query_params.get(name, str(default))
    if not text.isdigit() or not 1 <= int(text) <= most:
        raise Problem(400, f"`{name}` must be a whole number from 1 to {most}", title="Not a number")
    return int(text)


def operator(request: Request, token: str) -> None:
    """See that the caller sent the operator token; an empty one is nobody's.

    Raises:
        Problem: they did not.
    """
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not token or not hmac.compare_digest(given.encode(), token.encode()):
        raise Problem(
            401,
            "Send the operator token (HIFI_OBSERVE_TOKEN) as Bearer.",
            title="Not an operator",
            headers=[("www-authenticate", "Bearer")],
        )
