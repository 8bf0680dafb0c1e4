"""What a person asks of the provisioner while it rolls out a declaration. Pure."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

import orjson

from hifi.event import Record


class RequestKind(StrEnum):
    """What is asked for."""

    PAUSE = "pause"
    """Stay at the present share."""
    RESUME = "resume"
    """Go on after a pause."""
    ABORT = "abort"
    """Go back to the revision before."""
    FORCE = "force"
    """Go on to the next phase without waiting for a verdict."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, which concerns one declaration and is without effect on later ones.

    Attributes:
        pipe: its name.
        declaration: number of the declaration.
        kind: what is asked for.
        author: who asks.
        at_us: when, microseconds since 1970 UTC.
        share: of a `force`, the share from which to go on, in 1/10,000: asking twice is asking once.
    """

    pipe: str
    declaration: int
    kind: RequestKind
    author: str
    at_us: int
    share: int = 0

    def record(self) -> Record:
        """The record for the topic `requests`."""
        return Record(self.pipe.encode(), orjson.dumps(asdict(self)), [])


def decode(value: bytes | None) -> Request:
    """A request from the value of a record.

    Raises:
        ValueError: it is not the record of a request.
    """
    try:
        body = orjson.loads(value or b"")
        known = {name: body[name] for name in Request.__dataclass_fields__}
        return Request(**known | {"kind": RequestKind(body["kind"])})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a request: {error}") from None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What all requests about a declaration come to.

    Attributes:
        paused_by: who paused it; None: it is not paused.
        aborted_by: who aborted it; None: nobody.
        forced: share to the person who wants to go on from it.
    """

    paused_by: str | None
    aborted_by: str | None
    forced: dict[int, str]


def wishes(requests: Iterable[Request], declaration: int) -> Wishes:
    """Sum up requests, in their order, as far as they concern a declaration."""
    paused_by = aborted_by = None
    forced: dict[int, str] = {}
    for one in requests:
        if one.declaration != declaration:
            continue
        if one.kind is RequestKind.PAUSE:
            paused_by = one.author
        elif one.kind is RequestKind.RESUME:
            paused_by = None
        elif one.kind is RequestKind.ABORT:
            aborted_by = one.author
        else:
            forced[one.share] = one.author
    return Wishes(paused_by, aborted_by, forced)
