"""The part of one partition number in the watermarks; the topic `minutes` takes it to the owner of each pipe. Pure."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NotRequired

from typing_extensions import TypedDict

from hifi.record.typed_body import Integer
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.trusted_clock import ClockReading, TrustedClock
from hifi_observe.ledger import stage
from hifi_observe.ledger.event_times import EventTimes
from hifi_observe.ledger.open_events import OpenEvents
from hifi_observe.ledger.open_pieces import OpenAt
from hifi_observe.ledger.pipe_minute_stages import EGEST, ENRICH, NORMALIZE
from hifi_observe.ledger.recent_activity import RecentActivity

RECENT_US: Final = 60 * MICROSECONDS
LATE_IDS: Final = 20
"""Late events that are named."""
_SAMPLE_US: Final = 5 * MICROSECONDS
_SAMPLES: Final = RECENT_US // _SAMPLE_US

Failures = dict[str, dict[str, tuple[Integer, Integer]]]
"""Pipe to service to what failed there, and all that it handled."""


class LatePart(TypedDict):
    """Late events of a pipe in the last minute."""

    events: Integer
    oldest_us: Integer
    """The longest time from acceptance to the append to `raw`."""
    ids: list[str]
    """Of the newest: `<epoch>:<sequence>`."""


class EventLatePart(TypedDict):
    """Events of a pipe in the last minute that were late by their event time."""

    events: Integer
    by_us: Integer
    """The furthest that an event time was below what was stated."""
    newest: list[tuple[str, Integer]]
    """`<epoch>:<sequence>`, and by how much it was late."""


class WatermarkPart(TypedDict):
    """The open events of a partition number. Times in microseconds since 1970 UTC."""

    by: str
    """The process that wrote it."""
    monotonic: Integer
    wall: Integer
    at: Integer
    """By the trusted clock; 0: it is not confirmed yet."""
    set_back: Integer
    """Number of times that the trusted clock was set back since the process started."""
    reached: Integer
    """Everything that was acknowledged before this time has been read; 0: unknown."""
    unread: Integer
    """Records of `raw` that Kafka had deleted before they were read."""
    open: list[tuple[str, str, Integer, Integer, dict[str, Integer], Integer, Integer]]
    """Pipe, destination, and the fields of `OpenAt` in order, where anything is open."""
    failures: Failures
    late: dict[str, LatePart]
    event_times: dict[str, tuple[Integer, Integer]]
    """Pipe to the highest event time that was read, and to the floor (`hifi_observe.ledger.event_times`)."""
    event_late: dict[str, EventLatePart]
    pipes: NotRequired[Integer]
    """Offset up to which its writer had read the topic `pipes`: what is open at destinations that were declared later
    is not in it. A release before does not tell."""


class RecentFailures:
    """Failures of the last minute, from counts since the start."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, dict[str, dict[str, tuple[int, int]]]]] = deque(maxlen=_SAMPLES)

    def sample(self, live: RecentActivity, now_us: int) -> Failures:
        """The failures since the oldest sample of the last minute, by pipe and service; without zeros."""
        totals = {pipe: _totals(counts, live.refused[pipe]) for pipe, counts in live.counts.items()}
        if not self._samples or now_us - self._samples[-1][0] >= _SAMPLE_US:
            self._samples.append((now_us, totals))
        oldest_totals = self._samples[0][1]
        failures: Failures = {}
        for pipe, services in totals.items():
            for service, (failed, handled) in services.items():
                failed_before, handled_before = oldest_totals.get(pipe, {}).get(service, (0, 0))
                if handled > handled_before:
                    recent_counts = failed - failed_before, handled - handled_before
                    failures.setdefault(pipe, {})[service] = recent_counts
        return failures


def _totals(counts: Mapping[str, int], refused_counts: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Service to the failures there since the start, and all that it handled."""
    failed = counts.get("to-retry", 0) + counts.get("dead-delivery", 0) + refused_counts.get(EGEST, 0)
    return {
        NORMALIZE: (refused_counts.get(NORMALIZE, 0), counts.get(stage.RAW, 0)),
        ENRICH: (refused_counts.get(ENRICH, 0), counts.get(stage.NORMALIZED, 0)),
        EGEST: (failed, failed + counts.get("delivered", 0)),
    }


def part_of(
    open_events: OpenEvents,
    destinations: Callable[[str], Collection[str]],
    failures: Failures,
    clock: TrustedClock,
    clocks: ClockReading,
    writer: str,
) -> WatermarkPart:
    """The part of a partition number.

    Args:
        open_events: of its ledger.
        destinations: returns those that a pipe declares.
        failures: of the last minute.
        clock: of the process.
        clocks: its reading.
        writer: see `by`.
    """
    return {
        "by": writer,
        "monotonic": clocks.monotonic_us,
        "wall": clocks.wall_us,
        "at": clock.time_us(clocks) or 0,
        "set_back": clock.set_back,
        "reached": open_events.frontier.reached_us,
        "unread": open_events.holds.unread,
        "open": [
            (
                pipe,
                name,
                open_at.settled_us,
                open_at.first_pass_us,
                dict(open_at.numbers),
                open_at.event_us,
                open_at.late,
            )
            for pipe, open_by_destination in open_events.look(destinations).items()
            for name, open_at in open_by_destination.items()
        ],
        "failures": failures,
        "late": _late_parts(open_events, clocks.wall_us - RECENT_US),
        "event_times": _event_times(open_events.event_times),
        "event_late": _event_late(open_events.event_times, clocks.wall_us - RECENT_US),
    }


def _event_times(times: EventTimes) -> dict[str, tuple[int, int]]:
    return {
        pipe: (times.newest_us.get(pipe, 0), times.floor_us.get(pipe, 0))
        for pipe in times.newest_us.keys() | times.floor_us.keys()
    }


def _event_late(times: EventTimes, since_us: int) -> dict[str, EventLatePart]:
    late_parts: dict[str, EventLatePart] = {}
    for pipe, events in list(times.late.items()):
        recent_events = [event for event in events if event.appended_us >= since_us]
        if not recent_events:
            del times.late[pipe]
            continue
        newest = [(event.identity, event.by_us) for event in recent_events[-LATE_IDS:]]
        late_parts[pipe] = {
            "events": len(recent_events),
            "by_us": max(event.by_us for event in recent_events),
            "newest": newest,
        }
    return late_parts


def _late_parts(open_events: OpenEvents, since_us: int) -> dict[str, LatePart]:
    late_parts: dict[str, LatePart] = {}
    for pipe, events in list(open_events.late.items()):
        recent_events = [event for event in events if event.appended_us >= since_us]
        if not recent_events:
            del open_events.late[pipe]
            continue
        oldest_us = max(event.appended_us - event.accepted_us for event in recent_events)
        ids = [event.identity for event in recent_events[-LATE_IDS:]]
        late_parts[pipe] = {"events": len(recent_events), "oldest_us": oldest_us, "ids": ids}
    return late_parts


def add_up(watermark_parts: Collection[WatermarkPart]) -> dict[tuple[str, str], OpenAt]:
    """The open events over all parts, by pipe and destination, where there are any."""
    totals: dict[tuple[str, str], OpenAt] = {}
    reached_us = reached_by_all(watermark_parts)
    for watermark_part in watermark_parts:
        for row in watermark_part["open"]:
            pipe, destination, settled_us, first_pass_us, numbers, event_us, late_count = row
            total = totals.get((pipe, destination))
            if total is None:
                total = totals[pipe, destination] = OpenAt(reached_us, reached_us)
            total.settled_us = min(total.settled_us, settled_us)
            total.first_pass_us = min(total.first_pass_us, first_pass_us)
            total.numbers.update(numbers)
            total.event_us = min(total.event_us, event_us)
            total.late += late_count
    return totals


def reached_by_all(watermark_parts: Collection[WatermarkPart]) -> int:
    """Everything that was acknowledged before this time was read, whatever its partition; 0: unknown."""
    return min((watermark_part["reached"] for watermark_part in watermark_parts), default=0)


def event_floors(
    watermark_parts: Collection[WatermarkPart],
    keys: Iterable[tuple[str, str]],
    totals: Mapping[tuple[str, str], OpenAt],
    published_us: Mapping[str, int],
) -> dict[str, int]:
    """Pipe to the event time to which its floor can be raised: that of its newest event, or of an open one.

    It is not above the time up to which `raw` was read, because an event with a later time was not accepted then,
    whatever its sender's clock says.

    Args:
        watermark_parts: of all partition numbers.
        keys: pipe and destination of all statements.
        totals: what is open over all parts, by pipe and destination.
        published_us: pipe to the latest event time that was published.
    """
    newest_us: dict[str, int] = {}
    for watermark_part in watermark_parts:
        for pipe, (time_us, _) in watermark_part["event_times"].items():
            newest_us[pipe] = max(newest_us.get(pipe, 0), time_us)
    reached_us, floors_us = reached_by_all(watermark_parts), dict(published_us)
    for key in keys:
        pipe, open_at = key[0], totals.get(key)
        floor_us = min(newest_us.get(pipe, 0), reached_us)
        if open_at is not None:
            floor_us = min(floor_us, open_at.event_us)
        floors_us[pipe] = max(floors_us.get(pipe, 0), floor_us)
    return floors_us


def raise_floors(times: EventTimes, watermark_part: WatermarkPart, floors_us: Mapping[str, int]) -> None:
    """Raise the floors of a partition, and show them in the part that was made of it just now."""
    for pipe, floor_us in floors_us.items():
        times.raise_floor(pipe, floor_us)
        watermark_part["event_times"][pipe] = times.newest_us.get(pipe, 0), times.floor_us.get(pipe, 0)


def event_until(watermark_parts: Collection[WatermarkPart], pipe: str, open_at: OpenAt | None) -> int:
    """No event that was read has an earlier event time, is open at the destination and is not late; 0: unknown.

    Args:
        watermark_parts: of all partition numbers.
        pipe: its name.
        open_at: what is open at the destination over all parts.
    """
    floor_us = min(
        (watermark_part["event_times"].get(pipe, (0, 0))[1] for watermark_part in watermark_parts), default=0
    )
    return floor_us if open_at is None else min(floor_us, open_at.event_us)
