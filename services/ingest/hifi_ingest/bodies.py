"""The bodies of ingest's requests and responses; the OpenAPI document is made from them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from hifi.record.cloudevents.event import InvalidEvent
from hifi.runtime.http.problem import Problem, ProblemDetails

MAX_LISTED: Final = 100
"""Invalid events listed in one response; the others are only counted."""

QuotaUnit = Literal["events", "bytes"]
QuotaSubject = Literal["pipe", "key", "new pipe"]
_Text = Annotated[str, Field(min_length=1)]


class CloudEvent(BaseModel):
    """An event in the JSON format of CloudEvents 1.0; `hifi.record.cloudevents.decode` reads it."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str | bool | int | None]

    specversion: Literal["1.0"]
    id: _Text
    source: Annotated[_Text, Field(json_schema_extra={"format": "uri-reference"})]
    type: _Text
    subject: _Text | None = None
    time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    datacontenttype: str | None = None
    dataschema: Annotated[str, Field(json_schema_extra={"format": "uri"})] | None = None
    data: Any = None
    data_base64: Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})] | None = None


class Accepted(TypedDict):
    """Kafka has acknowledged every event of the request."""

    accepted: Annotated[int, Field(ge=0)]
    ids: Annotated[list[str], Field(description="The id of each event, in the order of the request.")]


class AckOutcome(StrEnum):
    """The result of one event of a request that was not accepted as a whole."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """Not written."""
    UNKNOWN = "unknown"
    """Sent to Kafka, but not acknowledged in time: it may be delivered or not."""


class EventProblem(TypedDict):
    """The error of one event of a request, or its outcome."""

    index: Annotated[int, Field(description="Index of the event in the request, from 0.")]
    line: NotRequired[
        Annotated[int, Field(description="Its line in JSON lines, from 1, empty ones included.")]
    ]
    id: NotRequired[str]
    detail: NotRequired[str]
    pointer: NotRequired[Annotated[str, Field(description="JSON pointer (RFC 6901) into the event.")]]
    outcome: NotRequired[AckOutcome]


class UsedUpQuota(TypedDict):
    """The quota that is used up."""

    of: QuotaSubject
    unit: QuotaUnit
    per_second: float


class RefusalMembers(TypedDict, total=False):
    """Members of problem details besides those of RFC 9457."""

    bad: Annotated[int, Field(description="Number of invalid events; the first 100 are listed.")]
    accepted: int
    refused: int
    unknown: int
    quota: UsedUpQuota
    paused: Annotated[bool, Field(description="Whether the pipe takes no events until it is resumed.")]
    events: list[EventProblem]


class RefusalDetails(ProblemDetails, RefusalMembers):
    """Problem details (RFC 9457)."""


def refusal(
    invalid_events: Mapping[int, InvalidEvent], event_count: int, lines: Mapping[int, int] | None = None
) -> Problem:
    """The error response for a request with invalid events. None of its events is accepted.

    Args:
        invalid_events: index of the event in the request to its error.
        event_count: events in the request.
        lines: index of the event to its line; None: the request is not JSON lines.
    """
    event_problems = [
        _event_problem(index, error) for index, error in sorted(invalid_events.items())[:MAX_LISTED]
    ]
    if lines is not None:
        for problem in event_problems:
            problem["line"] = lines[problem["index"]]
    statuses = {error.status for error in invalid_events.values()}
    status = statuses.pop() if len(statuses) == 1 else 400
    if event_count == 1:
        detail = f"the event was refused: {event_problems[0]['detail']}"
    else:
        truncation = f" (the first {MAX_LISTED} are listed)" if len(invalid_events) > MAX_LISTED else ""
        invalid_text = f"{len(invalid_events)} of {event_count} events are invalid"
        detail = f"{invalid_text}{truncation}; no event of the request was accepted"
    members: RefusalMembers = {"bad": len(invalid_events), "events": event_problems}
    return Problem(status, detail, members=members)


def _event_problem(index: int, error: InvalidEvent) -> EventProblem:
    problem: EventProblem = {"index": index, "detail": error.detail}
    if error.pointer:
        problem["pointer"] = error.pointer
    return problem
