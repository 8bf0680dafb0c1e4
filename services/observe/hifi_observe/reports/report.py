"""The availability report of a month as JSON: figures, reasons, ids, and what each figure means. Pure.

It has whole numbers and text only, so that its bytes can be signed (`hifi.runtime.signed_document`). Shares are rounded
down, so that a report never says more than was measured.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypedDict

from hifi_observe.minutes.availability import DOWN, UNKNOWN, Uptime
from hifi_observe.minutes.named_ids import EventId, NamedIds
from hifi_observe.reports.month import Month, minute_text
from hifi_observe.reports.pipe_month import MinuteSpan, PipeMonth, UnknownReason

NAME: Final = "report"
"""Name of the report in its envelope."""
MOST_IDS: Final = 10_000
"""Lost, and late, events of a pipe that a report lists; further ones are only counted."""
DEFINITIONS: Final[Mapping[str, str]] = {
    "minute": "A minute in UTC. An event belongs to the minute of its own time, or to that of its acceptance if they "
    "differ by more than the tolerance of the stream (2 minutes unless configured otherwise).",
    "colours": "Meshes that carry the stream. A minute of two is judged over the events of both, and over what the "
    "front before them refused. Empty: the stream has no colours.",
    "up": "Number of minutes that are neither down nor unknown.",
    "down": "Number of minutes with at least one of these causes. lag: the p95 from acceptance to the answer of the "
    "destination was over the SLO of that time. loss: more events were lost than the SLO allows. ingest: there was no "
    "sign of life of ingest for longer than allowed, or more than 1 % of its answers were errors of the server.",
    "unknown": "Number of minutes that could not be judged. They are neither up nor down. no-longer-kept: older than "
    "what is kept. before-first-minute: before the first minute that is recorded of the pipe. not-recorded: nothing is "
    "recorded of the minute. not-judged: recorded, with too little data to judge it. incomplete: of one of two "
    "colours, or of the front, too little is recorded. not-closed: not judged yet when this report was made.",
    "owner": "The owner that the pipe named last in the month. A report on an owner has each pipe that named this "
    "owner at the end of any day of the month, with the whole month, also if it was deleted or has another owner now.",
    "availability_percent": "Minutes up, in percent of minutes up and down; rounded down. None: no minute is known.",
    "least_availability_percent": "Minutes up, in percent of all minutes, as if each unknown one had been down; "
    "rounded down.",
    "nines": "-log10 of the share of down minutes in minutes up and down; without a down minute, of half a minute; "
    "rounded down. 3 is 99.9 %.",
    "budget_minutes": "Minutes of the whole month that may be down by the target; rounded down.",
    "budget_left_minutes": "budget_minutes less minutes down. Negative: the target was missed.",
    "accepted": "Number of events that hifi accepted: answered with 2xx, read from a source, or in its first topic.",
    "delivered": "Number of deliveries that a destination acknowledged; an event can have several destinations.",
    "dead": "Number of dead letters: events and deliveries that were refused for good and are kept with the reason.",
    "lost": "Number of events or deliveries that hifi accepted and that have no outcome and are on no topic.",
    "late": "Number of events that arrived after their minute had been closed, and amended it.",
    "id": "The id that the sender gave an event (CloudEvents `id`). None: it is hidden by the pipe, or on no topic.",
    "identity": "The identity that hifi gave an event: epoch and sequence.",
}
"""Figure to what it means, with its unit."""


class SpanJson(TypedDict):
    """Minutes in a row with the same reasons."""

    since: Annotated[str, Field(description="The first minute, UTC.")]
    until: Annotated[str, Field(description="The minute after the last one, UTC.")]
    minutes: int
    reasons: list[str]


class EventJson(TypedDict):
    """An event that was lost or late."""

    minute: str
    id: str | None
    identity: str
    partition: int
    lost_at: Annotated[str, Field(description="Where it was lost; empty: it was late.")]
    destination: str


class MinutesJson(TypedDict):
    """Number of minutes by state."""

    total: int
    up: int
    down: int
    unknown: int


class AvailabilityJson(TypedDict):
    """Figures of availability, as text where they have a fraction."""

    minutes: MinutesJson
    availability_percent: str | None
    least_availability_percent: str | None
    nines: str | None


class SloJson(TypedDict):
    """The SLO that a pipe declares when the report is made."""

    p95_s: str
    loss: int


class PipeReportJson(AvailabilityJson):
    """The month of a pipe."""

    pipe: str
    owner: str | None
    slo: SloJson | None
    budget_minutes: str
    budget_left_minutes: str
    events: dict[str, int]
    down: list[SpanJson]
    unknown: list[SpanJson]
    lost: list[EventJson]
    lost_not_listed: int
    late: list[EventJson]
    late_not_listed: int
    ids_hidden: bool
    ids_hidden_because: str | None


class ReportJson(TypedDict):
    """The report of a month."""

    title: Literal["Availability report"]
    format: Literal[1]
    stream: str
    colours: list[str]
    month: str
    since: str
    until: str
    partial: Annotated[bool, Field(description="The month had not ended when the report was made.")]
    made_at: str
    made_by: str
    pipe: str | None
    owner: str | None
    target_percent: str
    total: AvailabilityJson
    pipes: list[PipeReportJson]
    definitions: dict[str, str]


class SignatureJson(TypedDict):
    """A signature of the canonical JSON of the report."""

    algorithm: Literal["Ed25519"]
    public_key: str
    value: str


class SignedReportJson(TypedDict):
    """A report with its signature."""

    report: ReportJson
    signature: SignatureJson | None


@dataclass(frozen=True, slots=True)
class ReportedPipe:
    """The data of a pipe in a report."""

    name: str
    owner: str | None
    slo: SloJson | None
    month: PipeMonth
    ids: Sequence[tuple[int, NamedIds]]
    """Minute to its lost and late events."""
    hides_ids: bool
    hidden_because: str = ""
    """The reason, for people."""


@dataclass(frozen=True, slots=True)
class ReportHead:
    """The data of a report about itself."""

    stream: str
    colours: Sequence[str]
    """Which are reported on; empty: the stream has none."""
    made_at: str
    made_by: str
    pipe: str | None
    """To which it is limited; None: it is not."""
    owner: str | None
    """Whose pipes it has; None: those of everybody."""
    target: float


def report(head: ReportHead, month: Month, pipes: Iterable[ReportedPipe]) -> ReportJson:
    """The report on some pipes."""
    reported_pipes = list(pipes)
    uptimes = [pipe.month.uptime for pipe in reported_pipes]
    total = Uptime(
        sum(uptime.up for uptime in uptimes),
        sum(uptime.down for uptime in uptimes),
        sum(uptime.unknown for uptime in uptimes),
    )
    return {
        "title": "Availability report",
        "format": 1,
        "stream": head.stream,
        "colours": list(head.colours),
        "month": month.name,
        "since": minute_text(month.first),
        "until": minute_text(month.passed_end),
        "partial": month.partial,
        "made_at": head.made_at,
        "made_by": head.made_by,
        "pipe": head.pipe,
        "owner": head.owner,
        "target_percent": _percent_text(head.target),
        "total": _availability(total),
        "pipes": [_pipe(pipe, month, head.target) for pipe in reported_pipes],
        "definitions": dict(DEFINITIONS),
    }


def _pipe(pipe: ReportedPipe, month: Month, target: float) -> PipeReportJson:
    uptime = pipe.month.uptime
    budget = (1 - Decimal(str(target))) * (month.end - month.first)
    counts = pipe.month.counts
    lost_events = [(minute, event, ids.names) for minute, ids in pipe.ids for event in ids.lost]
    late_events = [(minute, event, ids.names) for minute, ids in pipe.ids for event in ids.late]
    listed_lost, listed_late = lost_events[:MOST_IDS], late_events[:MOST_IDS]
    return {
        "pipe": pipe.name,
        "owner": pipe.owner,
        "slo": pipe.slo,
        **_availability(uptime),
        "budget_minutes": _floor(budget, 1),
        "budget_left_minutes": _floor(budget - uptime.down, 1),
        "events": {
            "accepted": counts["in"],
            "delivered": counts["delivered"],
            "dead": counts["dead"],
            "lost": counts["lost"],
            "late": counts["late"],
        },
        "down": [_span(span) for span in pipe.month.of(DOWN)],
        "unknown": [_span(span) for span in pipe.month.of(UNKNOWN)],
        "lost": [_event(row, hidden=pipe.hides_ids) for row in listed_lost],
        "lost_not_listed": max(0, counts["lost"] - len(listed_lost)),
        "late": [_event(row, hidden=pipe.hides_ids) for row in listed_late],
        "late_not_listed": max(0, counts["late"] - len(listed_late)),
        "ids_hidden": pipe.hides_ids,
        "ids_hidden_because": pipe.hidden_because or None,
    }


def _availability(uptime: Uptime) -> AvailabilityJson:
    known_minutes = uptime.up + uptime.down
    total_minutes = known_minutes + uptime.unknown
    return {
        "minutes": {"total": total_minutes, "up": uptime.up, "down": uptime.down, "unknown": uptime.unknown},
        "availability_percent": _share(uptime.up, known_minutes),
        "least_availability_percent": _share(uptime.up, total_minutes),
        "nines": None if uptime.nines is None else f"{math.floor(uptime.nines * 100 + 1e-9) / 100:.2f}",
    }


def _share(count: int, total: int) -> str | None:
    """A share in percent with four digits, rounded down; None: the total is 0."""
    if not total:
        return None
    millionths = count * 1_000_000 // total
    return f"{millionths // 10_000}.{millionths % 10_000:04}"


def _percent_text(share: float) -> str:
    return f"{(Decimal(str(share)) * 100).normalize():f}"


def _floor(value: Decimal, digits: int) -> str:
    return str(value.quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR))


def _span(span: MinuteSpan) -> SpanJson:
    return {
        "since": minute_text(span.first),
        "until": minute_text(span.end),
        "minutes": span.minutes,
        "reasons": list(span.reasons),
    }


def _event(row: tuple[int, EventId, Mapping[str, str]], *, hidden: bool) -> EventJson:
    minute, event, ids_by_identity = row
    return {
        "minute": minute_text(minute),
        "id": None if hidden else ids_by_identity.get(event.identity),
        "identity": event.identity,
        "partition": event.partition,
        "lost_at": event.hop,
        "destination": event.destination,
    }


def reasons_text(reasons: Sequence[str]) -> str:
    """Reasons for people."""
    texts_by_reason: Mapping[str, str] = {
        UnknownReason.GONE: "no longer kept",
        UnknownReason.BEFORE: "before the first recorded minute",
        UnknownReason.OPEN: "not closed yet",
        UnknownReason.UNRECORDED: "nothing recorded",
        UnknownReason.UNJUDGED: "too little data",
        UnknownReason.INCOMPLETE: "not known of both colours",
    }
    return ", ".join(texts_by_reason.get(reason, reason) for reason in reasons)
