"""Requests of a person to the rollout service or the deployer while it changes something. Pure."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

import orjson

from hifi.control.rollout_status import RolloutStatus
from hifi.record.record import Record
from hifi.record.typed_body import RecordBodyReader
from hifi.runtime.errors import Misconfigured


class RequestKind(StrEnum):
    """The kind of a request."""

    PAUSE = "pause"
    """Stay as far as it is."""
    RESUME = "resume"
    """Go on after a pause."""
    ABORT = "abort"
    """Go back to the revision or release before."""
    FORCE = "force"
    """Take the next action without waiting for a verdict."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, which concerns one declaration or desired release and is without effect on later ones.

    Attributes:
        scope: `pipe/NAME` or `service/NAME`.
        number: of the declaration or the desired release.
        kind: what is asked for.
        author: who asks.
        at_us: when, microseconds since 1970 UTC.
        share: of a `force`, the share from which to go on, in 1/10,000, or `stage` of a deployment: asking twice is
            asking once.
    """

    scope: str
    number: int
    kind: RequestKind
    author: str
    at_us: int
    share: int = 0

    def record(self) -> Record:
        """The record for the topic `requests`."""
        return Record(self.scope.encode(), orjson.dumps(asdict(self)), [])


_REQUEST: Final = RecordBodyReader(Request, "a request", required=["share"])


def request_about(status: RolloutStatus, kind: RequestKind, author: str, at_us: int) -> Request:
    """A request about a rollout, from its status.

    Raises:
        Misconfigured: the rollout has ended.
    """
    if status.state.final:
        raise Misconfigured(f"the rollout of {status.pipe} has ended: it is {status.state.value}")
    return Request(f"pipe/{status.pipe}", status.declaration, kind, author, at_us, status.share)


def decode(value: bytes | None) -> Request:
    """A request from the value of a record.

    Raises:
        ValueError: it is not the record of a request.
    """
    return _REQUEST.of_value(value)


@dataclass(frozen=True, slots=True)
class Wishes:
    """The sum of all requests about a declaration or a desired release.

    Attributes:
        paused_by: who paused it; None: it is not paused.
        aborted_by: who aborted it; None: nobody.
        forced: share or batch to the person who wants to go on from it.
    """

    paused_by: str | None
    aborted_by: str | None
    forced: dict[int, str]


def wishes(requests: Iterable[Request], number: int) -> Wishes:
    """Sum up requests, in their order, as far as they concern the declaration or release with this number."""
    paused_by = aborted_by = None
    forced: dict[int, str] = {}
    for request in requests:
        if request.number != number:
            continue
        if request.kind is RequestKind.PAUSE:
            paused_by = request.author
        elif request.kind is RequestKind.RESUME:
            paused_by = None
        elif request.kind is RequestKind.ABORT:
            aborted_by = request.author
        else:
            forced[request.share] = request.author
    return Wishes(paused_by, aborted_by, forced)
