"""Answers that are not 200, as problem+json (RFC 9457)."""

import orjson
from starlette.requests import Request
from starlette.responses import Response


class Problem(Exception):
    """An answer for the caller: status, and one sentence that says how to mend it."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail


async def answer(_: Request, error: Exception) -> Response:
    """The response of a Problem."""
    assert isinstance(error, Problem)
    body = {"type": "about:blank", "title": error.title, "status": error.status, "detail": error.detail}
    headers = {"www-authenticate": "Bearer"} if error.status == 401 else {}
    return Response(orjson.dumps(body), error.status, headers, media_type="application/problem+json")
