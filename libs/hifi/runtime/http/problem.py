"""Error responses of every HTTP server of hifi: problem details (RFC 9457).

Raise `Problem` in a handler. A raw ASGI app, and code below the app (connection limits), send `Problem.parts()`; a
Starlette app returns `Problem.response()` from its exception handler.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final

import orjson
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from hifi.runtime.errors import HifiError

MEDIA_TYPE: Final = "application/problem+json"
_CONTENT_TYPE: Final = (b"content-type", MEDIA_TYPE.encode())

ResponseParts = tuple[int, bytes, list[tuple[bytes, bytes]]]
"""Status, body and headers (names in lower case, without `content-length`) of an HTTP response."""


class ProblemDetails(TypedDict):
    """Problem details (RFC 9457)."""

    type: Annotated[str, Field(json_schema_extra={"format": "uri-reference"})]
    title: str
    status: int
    detail: str


class Problem(HifiError):
    """An error response, raised where the request is refused.

    Attributes:
        status: HTTP status.
        detail: one sentence that tells the caller what is wrong and how to correct it; never quotes event data.
        headers: further response headers, such as `retry-after`.
        members: further members of the problem details.
        title: short summary; the status phrase unless given.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Sequence[tuple[str, str]] = (),
        members: Mapping[str, Any] | None = None,
        title: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.members = members or {}
        self.title = HTTPStatus(status).phrase if title is None else title

    def parts(self) -> ResponseParts:
        """The response for a raw ASGI app."""
        headers = [(name.encode(), value.encode()) for name, value in self.headers]
        return self.status, self._body(), [_CONTENT_TYPE, *headers]

    def response(self) -> Response:
        """The response for a Starlette app."""
        return Response(self._body(), self.status, dict(self.headers), media_type=MEDIA_TYPE)

    def _body(self) -> bytes:
        details: ProblemDetails = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        return orjson.dumps({**details, **self.members})


def retry_later(detail: str, after_s: int = 1, members: Mapping[str, Any] | None = None) -> Problem:
    """503 with Retry-After, in seconds: the request is valid and may succeed later."""
    return Problem(503, detail, [("retry-after", str(after_s))], members)
