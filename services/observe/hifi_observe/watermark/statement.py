"""The statement about one pipe and destination: until when everything has its outcome, and what is open. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from typing_extensions import TypedDict

from hifi.pipe.model import Timely
from hifi.record.typed_body import Integer, Real
from hifi.runtime.clock import MICROSECONDS
from hifi_observe.ledger.event_times import UNKNOWN_US
from hifi_observe.ledger.open_pieces import OpenAt
from hifi_observe.ledger.pipe_minute_stages import IN_FLIGHT, INGEST, PARKED_STATE, WAITING
from hifi_observe.watermark.chains import ChainJson
from hifi_observe.watermark.part import LATE_IDS, EventLatePart, WatermarkPart, event_until, reached_by_all

VALID_US: Final = 3 * MICROSECONDS
"""A statement holds for this long; the part of a partition number counts for as long."""
_BY_DEFAULT: Final = Timely()
WITHHELD_TIMES: Final = 4
"""In `Watermark.withheld`, if there are any."""
_LAST_US: Final = 253_402_300_799_999_999

Verdict: TypeAlias = Literal["current", "degraded", "unknown"]
CURRENT: Final = "current"
DEGRADED: Final = "degraded"
UNKNOWN: Final = "unknown"


class OpenJson(TypedDict):
    """Open events below the watermark and above it."""

    in_flight: Integer
    waiting: Integer
    parked: Integer
    services: dict[str, Integer]
    """Service that events in flight wait for, to events."""


class LateEventJson(TypedDict):
    """An event that arrived after its event time had been stated as settled."""

    event: str
    """`<epoch>:<sequence>`."""
    by_s: Real
    """Distance of its event time below the stated time."""


class EventLateJson(TypedDict):
    """Late events of the pipe, by their event time. `event_until` does not cover them."""

    last_1m: Integer
    by_s: Real
    """The largest distance below: a reader who leaves this much time misses none."""
    open: Integer
    """Those of any time that have no outcome at the destination yet."""
    newest: list[LateEventJson]


class Watermark(TypedDict):
    """A statement about a pipe and destination. Times are ISO 8601 in UTC."""

    pipe: str
    destination: str
    settled_until: str | None
    """Every event that was acknowledged before has its outcome there. None: unknown."""
    first_pass_until: str | None
    """The same, but deliveries that wait for a retry count as settled."""
    open: OpenJson
    failures_1m: dict[str, Real]
    """Service to the share that failed there in the last minute, of 1."""
    late_1m: Integer
    """Events of the last minute that were accepted before a time already published, and acknowledged after it."""
    late_oldest_s: Real
    late_ids: list[str]
    """The newest of them, `<epoch>:<sequence>`."""
    event_until: str | None
    """Every event with an earlier event time that was acknowledged before `event_as_of` has its outcome there, or is
    late. None: unknown. It never goes back."""
    event_as_of: str | None
    event_because: list[str]
    """Reasons why `event_until` is unknown, or stands still."""
    event_late: EventLateJson
    chain: ChainJson | None
    """The same over the pipes that write what this one reads; None: there are none."""
    withheld: list[str | None]
    """`settled_until` and `first_pass_until`, `event_until` and `event_as_of` as published before a clock was set back;
    empty: it was not. They are null until the clock has caught up."""
    as_of: str
    valid_until: str
    """From then on the statement says nothing about what is open."""
    verdict: Verdict
    because: list[str]


class Times(NamedTuple):
    """The times published last of a pipe and destination, microseconds since 1970 UTC; 0: none."""

    settled_us: int = 0
    first_pass_us: int = 0
    withheld: bool = False
    """Whether a clock was set back since: these times were true by the clock before, and are not stated any more."""
    event_us: int = 0
    event_as_of_us: int = 0
    event_withheld: bool = False
    """Whether both are withheld; this can last longer than `withheld`."""


def iso(us: int) -> str:
    """A time, microseconds since 1970 UTC, as text; one after the year 9999 as the end of that year."""
    seconds, fraction = divmod(min(us, _LAST_US), MICROSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:06d}Z"


def _iso(us: int) -> str | None:
    return iso(us) if us else None


def microseconds(text: str | None) -> int:
    """The time that `iso` wrote; 0 for None."""
    if text is None:
        return 0
    parsed_time = datetime.fromisoformat(text)
    return int(parsed_time.replace(microsecond=0).timestamp()) * MICROSECONDS + parsed_time.microsecond


def times_of(watermark: Watermark | None) -> Times:
    """The times that a statement published."""
    if watermark is None:
        return Times()
    settled_us, first_pass_us = (
        microseconds(watermark[name]) for name in ("settled_until", "first_pass_until")
    )
    event_us, as_of_us = (microseconds(watermark[name]) for name in ("event_until", "event_as_of"))
    if not watermark["withheld"]:
        return Times(settled_us, first_pass_us, event_us=event_us, event_as_of_us=as_of_us)
    withheld_us = [microseconds(text) for text in watermark["withheld"]]
    withheld = bool(withheld_us[0] or withheld_us[1])
    if withheld:
        settled_us, first_pass_us = withheld_us[:2]
    event_us, as_of_us = withheld_us[2:] if withheld_us[2] else (event_us, as_of_us)
    return Times(settled_us, first_pass_us, withheld, event_us, as_of_us, bool(withheld_us[2]))


def state(
    pipe: str,
    destination: str,
    open_at: OpenAt | None,
    watermark_parts: Mapping[int, WatermarkPart],
    partitions: int,
    published_times: Times,
    now_us: int | None,
    lost: int = 0,
    timely: Timely = _BY_DEFAULT,
    declared_at: int = -1,
) -> Watermark:
    """The statement of now.

    Args:
        pipe: its name.
        destination: its name.
        open_at: what is open there over all parts; None: nothing.
        watermark_parts: partition number to its part.
        partitions: of the stream.
        published_times: what was published last; what is published never goes back.
        now_us: by the trusted clock; None: it is not confirmed yet.
        lost: events of the pipe that are lost.
        timely: when the watermark is current.
        declared_at: offset in the topic `pipes` of the newest revision that declares the destination; -1: none does.
    """
    unknown_reasons = _unknown_reasons(watermark_parts, partitions, now_us)
    unknown_reasons += _undeclared(watermark_parts, partitions, declared_at, published_times)
    if open_at is None:
        open_at = OpenAt(reached_by_all(watermark_parts.values()), reached_by_all(watermark_parts.values()))
    numbers = open_at.numbers
    counted_times = Times() if unknown_reasons else Times(open_at.settled_us, open_at.first_pass_us)
    times = _next_times(published_times, counted_times, now_us)
    counted_event_us = 0 if unknown_reasons else event_until(watermark_parts.values(), pipe, open_at)
    times = _next_event(times, counted_event_us, reached_by_all(watermark_parts.values()))
    settled_us, first_pass_us = times.settled_us, times.first_pass_us
    if times.withheld:
        unknown_reasons = [*unknown_reasons, f"a clock was set back, and is not at {iso(max(times[:2]))} yet"]
        settled_us = first_pass_us = 0
    event_us, event_as_of_us = (0, 0) if times.event_withheld else (times.event_us, times.event_as_of_us)
    now_us = now_us or 0
    at_us = min(
        (
            now_us,
            *(
                watermark_part["at"]
                for watermark_part in watermark_parts.values()
                if now_us - watermark_part["at"] <= VALID_US
            ),
        )
    )
    services = {name: numbers[name] for name in IN_FLIGHT if numbers[name]}
    open_json: OpenJson = {
        "in_flight": sum(services.values()),
        "waiting": numbers[WAITING],
        "parked": numbers[PARKED_STATE],
        "services": services,
    }
    failures = _failures(
        watermark_part["failures"].get(pipe, {}) for watermark_part in watermark_parts.values()
    )
    reasons = _reasons(
        open_json, watermark_parts.values(), settled_us, now_us, lost, round(timely.within * MICROSECONDS)
    )
    reasons += [
        f"{share * 100:.2g} % failed at {service} in the last minute"
        for service, share in failures.items()
        if timely.failures is not None and share > timely.failures
    ]
    late_parts = [
        watermark_part["late"][pipe]
        for watermark_part in watermark_parts.values()
        if pipe in watermark_part["late"]
    ]
    return {
        "pipe": pipe,
        "destination": destination,
        "settled_until": _iso(settled_us),
        "first_pass_until": _iso(first_pass_us),
        "open": open_json,
        "failures_1m": {service: round(share, 4) for service, share in failures.items()},
        "late_1m": sum(row["events"] for row in late_parts),
        "late_oldest_s": round(max((row["oldest_us"] for row in late_parts), default=0) / MICROSECONDS, 3),
        "late_ids": [identity for row in late_parts for identity in row["ids"]][-LATE_IDS:],
        "event_until": _iso(event_us),
        "event_as_of": _iso(event_as_of_us),
        "event_because": _event_reasons(times, counted_event_us, open_at, is_unknown=bool(unknown_reasons)),
        "event_late": _event_late(
            [watermark_part["event_late"].get(pipe) for watermark_part in watermark_parts.values()],
            open_at.late,
        ),
        "chain": None,
        "withheld": _withheld(times),
        "as_of": iso(at_us),
        "valid_until": iso(at_us + VALID_US),
        "verdict": UNKNOWN if unknown_reasons else DEGRADED if reasons else CURRENT,
        "because": [*unknown_reasons, *reasons],
    }


def _next_times(published_times: Times, counted_times: Times, now_us: int | None) -> Times:
    """The times to publish, which never go back: what is settled stays settled.

    After a clock was set back, the times of before are withheld until the new ones have come as far.
    """
    first_pass_us = max(counted_times.first_pass_us, counted_times.settled_us)
    clock_set_back = now_us is not None and now_us < max(
        published_times.settled_us, published_times.first_pass_us
    )
    if published_times.withheld or clock_set_back:
        if (
            counted_times.settled_us < published_times.settled_us
            or first_pass_us < published_times.first_pass_us
        ):
            return published_times._replace(withheld=True)
        return published_times._replace(
            settled_us=counted_times.settled_us, first_pass_us=first_pass_us, withheld=False
        )
    settled_us = max(counted_times.settled_us, published_times.settled_us)
    first_pass_us = max(first_pass_us, settled_us, published_times.first_pass_us)
    return published_times._replace(settled_us=settled_us, first_pass_us=first_pass_us)


def _next_event(times: Times, counted_us: int, reached_us: int) -> Times:
    """The event time to publish. What was published stays, with its `event_as_of`, until more can be said.

    Args:
        times: to publish; those of events as they were published last.
        counted_us: the event time as of now; 0: unknown.
        reached_us: everything that was acknowledged before was read.
    """
    if times.withheld:
        return times._replace(event_withheld=bool(times.event_us))
    if counted_us and counted_us >= times.event_us and reached_us >= times.event_as_of_us:
        return times._replace(event_us=counted_us, event_as_of_us=reached_us, event_withheld=False)
    return times._replace(event_withheld=times.event_withheld and bool(times.event_us))


def _withheld(times: Times) -> list[str | None]:
    if not times.withheld and not times.event_withheld:
        return []
    settled_us, first_pass_us = times[:2] if times.withheld else (0, 0)
    event_us, as_of_us = (times.event_us, times.event_as_of_us) if times.event_withheld else (0, 0)
    return [_iso(us) for us in (settled_us, first_pass_us, event_us, as_of_us)]


def _event_reasons(times: Times, counted_us: int, open_at: OpenAt, *, is_unknown: bool) -> list[str]:
    """Reasons why the event time is unknown, or stands still."""
    if is_unknown:
        return ["what is open is not known"]
    if open_at.event_us == UNKNOWN_US:
        return ["events whose time is not known are open: backfill, or from before observe started"]
    if times.event_withheld:
        return [f"a clock was set back, and is not at {iso(times.event_as_of_us)} yet"]
    if not counted_us:
        return ["no event has been read yet"]
    if counted_us < times.event_us:
        return ["an event with an earlier time, which arrived while observe did not look, is open"]
    return []


def _event_late(optional_parts: Iterable[EventLatePart | None], open_events: int) -> EventLateJson:
    late_parts = [late_part for late_part in optional_parts if late_part is not None]
    newest: list[LateEventJson] = [
        {"event": identity, "by_s": round(by_us / MICROSECONDS, 3)}
        for late_part in late_parts
        for identity, by_us in late_part["newest"]
    ]
    return {
        "last_1m": sum(late_part["events"] for late_part in late_parts),
        "by_s": round(max((late_part["by_us"] for late_part in late_parts), default=0) / MICROSECONDS, 3),
        "open": open_events,
        "newest": newest[-LATE_IDS:],
    }


def expired(watermark: Watermark, now_us: int) -> Watermark:
    """A statement as it is to be read at a time: past its validity it says nothing about what is open."""
    if now_us <= microseconds(watermark["valid_until"]) or watermark["verdict"] == UNKNOWN:
        return watermark
    age_s = (now_us - microseconds(watermark["as_of"])) / MICROSECONDS
    because = [f"observe has stated nothing for {age_s:.0f} s"]
    return {**watermark, "verdict": UNKNOWN, "because": because}


def _unknown_reasons(
    watermark_parts: Mapping[int, WatermarkPart], partitions: int, now_us: int | None
) -> list[str]:
    """Reasons why not all open events are known."""
    if now_us is None:
        return ["Kafka has not confirmed the clock yet"]
    if not partitions:
        return ["the number of partitions is not known yet"]
    absent_partitions, unread_partitions, deleted_records = [], [], 0
    for partition in range(partitions):
        watermark_part = watermark_parts.get(partition)
        if watermark_part is None or now_us - watermark_part["at"] > VALID_US:
            absent_partitions.append(partition)
            continue
        deleted_records += watermark_part["unread"]
        if not watermark_part["reached"]:
            unread_partitions.append(partition)
    reasons = []
    if absent_partitions:
        reasons.append(f"not observed: {_partitions(absent_partitions)}")
    if unread_partitions:
        reasons.append(f"not read up to its end yet: {_partitions(unread_partitions)}")
    if deleted_records:
        reasons.append(f"{deleted_records} records of raw were deleted before observe read them")
    return reasons


def _undeclared(
    watermark_parts: Mapping[int, WatermarkPart], partitions: int, declared_at: int, published_times: Times
) -> list[str]:
    """The partitions whose observe does not know yet that the destination is declared; at most one reason.

    A part of a release before counts as one that knows, unless nothing was published of the destination.
    """
    is_stated = published_times.settled_us or published_times.withheld
    default_offset = declared_at if is_stated else -1
    unread_partitions = [
        partition
        for partition in range(partitions)
        if partition in watermark_parts
        and watermark_parts[partition].get("pipes", default_offset) < declared_at
    ]
    return (
        [f"observe has not read yet that the destination is declared: {_partitions(unread_partitions)}"]
        if unread_partitions
        else []
    )


def _partitions(numbers: Sequence[int]) -> str:
    return f"partition{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _reasons(
    open_json: OpenJson,
    watermark_parts: Iterable[WatermarkPart],
    settled_us: int,
    now_us: int,
    lost: int,
    within_us: int,
) -> list[str]:
    """Reasons why the watermark is degraded."""
    waiting_counts = ((open_json["waiting"], "waiting for a retry"), (open_json["parked"], "parked"))
    reasons = [f"{number} {text}" for number, text in waiting_counts if number]
    services = open_json["services"]
    if services.get(INGEST):
        reasons.append(f"{services[INGEST]} acknowledged events that are not in raw, or of minutes long past")
    if lost:
        reasons.append(f"{lost} lost")
    reached_us = reached_by_all(list(watermark_parts))
    if reached_us and now_us - reached_us > within_us:
        reasons.append(f"raw is read up to {(now_us - reached_us) / MICROSECONDS:.1f} s ago")
    elif settled_us and now_us - settled_us > within_us and open_json["in_flight"]:
        services_text = ", ".join(
            f"{number} at {name}" for name, number in services.items() if name != INGEST
        )
        behind_s = (now_us - settled_us) / MICROSECONDS
        reasons.append(
            f"the oldest open event is {behind_s:.1f} s old{f' ({services_text})' if services_text else ''}"
        )
    return reasons


def _failures(failures_by_part: Iterable[Mapping[str, tuple[int, int]]]) -> dict[str, float]:
    """Service to the share that failed there, of those that handled anything."""
    totals: dict[str, tuple[int, int]] = {}
    for services in failures_by_part:
        for name, (failed, handled) in services.items():
            failed_before, handled_before = totals.get(name, (0, 0))
            totals[name] = failed_before + failed, handled_before + handled
    return {name: failed / handled for name, (failed, handled) in sorted(totals.items()) if handled}
