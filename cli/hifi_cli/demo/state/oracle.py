"""What steps must give, computed in plain Python from the flights and from the order in which `raw` has them. Pure.

This implements docs/steps.md a second time, by hand and deliberately without code of the service state: if the two
differ, one of them is wrong. The rule of time: the watermark before an event is the latest time of the events before
it in its partition of `raw`, or what a heartbeat that was written before it says, if that is later. An event is late if
its time is more than the lateness before that.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hifi_cli.demo.state.flight_day import FlightEvent


class LoggedEvent(NamedTuple):
    """An event as `raw` has it.

    Attributes:
        partition: of `raw`.
        offset: there.
        id: of the event.
    """

    partition: int
    offset: int
    id: str


class LoggedHeartbeat(NamedTuple):
    """A heartbeat with a watermark, as `enriched` has it.

    Attributes:
        partition: of both topics.
        after: offset in `raw` of the last record before it.
        watermark_ms: milliseconds since 1970 UTC.
    """

    partition: int
    after: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class ExpectedStep:
    """A step as the oracle knows it.

    Attributes:
        name: of its pipe.
        key: field of a flight whose values have results of their own: `carrier` or `origin`.
        size_ms: length of a window, milliseconds.
        every_ms: time from the start of one window to the next, milliseconds.
        lateness_ms: how far an event may be behind the watermark, milliseconds.
    """

    name: str
    key: str
    size_ms: int
    every_ms: int
    lateness_ms: int

    def late(
        self, flights: Mapping[str, FlightEvent], watermarks_ms: Mapping[str, int | None]
    ) -> frozenset[str]:
        """Ids of the events that are late. A cancelled flight is left out before its time is looked at.

        Args:
            flights: by id.
            watermarks_ms: id to the watermark before the event, see `watermarks`.
        """
        return frozenset(
            name
            for name, watermark_ms in watermarks_ms.items()
            if watermark_ms is not None
            and flights[name].delay is not None
            and flights[name].time_ms < watermark_ms - self.lateness_ms
        )

    def results(self, counted: Iterable[FlightEvent]) -> dict[tuple[int, str], dict[str, Any]]:
        """End of a window, milliseconds since 1970 UTC, and key, to the fields of its result.

        Args:
            counted: the events that are neither late nor cancelled.
        """
        delays: dict[tuple[int, str], list[int]] = defaultdict(list)
        for event in counted:
            start_ms = event.time_ms - event.time_ms % self.every_ms
            while start_ms > event.time_ms - self.size_ms:
                if event.delay is not None:
                    delays[start_ms + self.size_ms, getattr(event, self.key)].append(event.delay)
                start_ms -= self.every_ms
        return {
            place: {
                "flights": len(values),
                "late": sum(value >= 15 for value in values),
                "total": sum(values),
                "worst": max(values),
                "mean": sum(values) / len(values),
            }
            for place, values in delays.items()
        }


def watermarks(
    events: Iterable[LoggedEvent], heartbeats: Iterable[LoggedHeartbeat], flights: Mapping[str, FlightEvent]
) -> dict[str, int | None]:
    """Id to the watermark before the first record of an event, milliseconds since 1970 UTC; None: there was none yet.

    Args:
        events: all records of the pipe in `raw`, in any order. One with the id of an earlier one raises the watermark,
            and is not counted.
        heartbeats: those of the pipe.
        flights: by id.
    """
    return _follow(events, heartbeats, flights)[0]


def closed_until_ms(
    events: Sequence[LoggedEvent], flights: Mapping[str, FlightEvent], lateness_ms: int
) -> int:
    """Time until which windows close without any more events, milliseconds since 1970 UTC: all partitions passed it."""
    _, highest_ms = _follow(events, (), flights)
    return min(highest_ms.values(), default=0) - lateness_ms


def _follow(
    events: Iterable[LoggedEvent], heartbeats: Iterable[LoggedHeartbeat], flights: Mapping[str, FlightEvent]
) -> tuple[dict[str, int | None], dict[int, int]]:
    """Id to the watermark before an event, and partition to the watermark after all of them."""
    before_ms: dict[str, int | None] = {}
    highest_ms: dict[int, int] = {}
    # A heartbeat comes after the record that it names, and before the next one.
    steps: list[tuple[int, int, int, str, int]] = [
        *((event.partition, event.offset, 0, event.id, flights[event.id].time_ms) for event in events),
        *((beat.partition, beat.after, 1, "", beat.watermark_ms) for beat in heartbeats),
    ]
    for partition, _, is_heartbeat, name, time_ms in sorted(steps):
        if not is_heartbeat:
            before_ms.setdefault(name, highest_ms.get(partition))
        highest_ms[partition] = max(time_ms, highest_ms.get(partition, time_ms))
    return before_ms, highest_ms
