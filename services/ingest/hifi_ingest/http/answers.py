"""Refusals as problem details (RFC 9457)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import orjson

from hifi.errors import HifiError

Answer = tuple[int, bytes, list[tuple[bytes, bytes]]]
"""Status, body and headers."""

MOST_LISTED: Final = 100
"""Bad events that one answer lists; the rest is counted."""
_JSON: Final = (b"content-type", b"application/json")
_PROBLEM: Final = (b"content-type", b"application/problem+json")


class Problem(HifiError):
    """The request is refused, with a status, a sentence for a person, and what concerns single events.

    Attributes:
        status: of the answer.
        detail: one sentence; it never quotes data.
        members: further members of the problem details.
        headers: further headers of the answer, such as Retry-After.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Sequence[tuple[str, str]] = (),
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.members = members or {}

    def answer(self) -> Answer:
        """What goes out."""
        title = HTTPStatus(self.status).phrase
        body = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        headers = [(name.encode(), value.encode()) for name, value in self.headers]
        return self.status, orjson.dumps(body | dict(self.members)), [_PROBLEM, *headers]


@dataclass(frozen=True, slots=True)
class Flaw(Exception):
    """What is wrong with one event. `pointer` is a JSON pointer (RFC 6901) into it."""

    detail: str
    pointer: str = ""
    status: int = 400


def flawed(flaws: Mapping[int, Flaw], total: int) -> Problem:
    """The refusal of a whole request because of some of its events.

    Args:
        flaws: index of the event in the request to what is wrong with it.
        total: events in the request.
    """
    listed = [
        {"index": index, "detail": flaw.detail} | ({"pointer": flaw.pointer} if flaw.pointer else {})
        for index, flaw in sorted(flaws.items())[:MOST_LISTED]
    ]
    statuses = {flaw.status for flaw in flaws.values()}
    status = statuses.pop() if len(statuses) == 1 else 400
    if total == 1:
        detail = f"the event was refused: {listed[0]['detail']}"
    else:
        more = f" (the first {MOST_LISTED} are listed)" if len(flaws) > MOST_LISTED else ""
        detail = f"{len(flaws)} of {total} events are refused{more}, so none of the request was taken"
    return Problem(status, detail, members={"bad": len(flaws), "events": listed})


def retry_later(detail: str, after_s: int = 1, members: Mapping[str, Any] | None = None) -> Problem:
    """503 with Retry-After: nothing is wrong with the request."""
    return Problem(503, detail, [("retry-after", str(after_s))], members)


def accepted(ids: Sequence[bytes]) -> Answer:
    """202: Kafka has every event of the request."""
    body = orjson.dumps({"accepted": len(ids), "ids": [each.decode() for each in ids]})
    return 202, body, [_JSON]
