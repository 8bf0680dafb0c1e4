"""The results that steps must give, computed in plain Python from the events and from their order in `raw`. Pure.

This implements docs/steps.md a second time, by hand and deliberately without code of the service state: if the two
differ, one of them is wrong. The rule of time: the watermark before an event is the latest time of the events of its
pipe before it in its partition of `raw`, or what a heartbeat that was written before it says, if that is later. An
event is late if its time is more than the lateness before that.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from hifi.pipe.sources.timestamps import rfc3339
from hifi_cli.demo.state.day_events import FLIGHTS, WEATHER, DayEvent, FlightEvent, WeatherEvent

Place: TypeAlias = tuple[str, ...]
"""What identifies a result among those of its step."""


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
class PipeLog:
    """What the topics say of the events of one pipe.

    Attributes:
        events: all its records in `raw`, in any order. One with the id of an earlier one raises the watermark, and is
            not counted.
        heartbeats: of the pipe.
    """

    events: Sequence[LoggedEvent] = ()
    heartbeats: Sequence[LoggedHeartbeat] = ()


class ExpectedResult(NamedTuple):
    """A result of a step.

    Attributes:
        closed_ms: it is written once the step has closed everything before, milliseconds since 1970 UTC.
        body: its data.
    """

    closed_ms: int
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExpectedStep(ABC):
    """A step as the oracle knows it.

    Attributes:
        name: of its pipe.
        lateness_ms: how far an event may be behind the watermark, milliseconds.
        key: field whose values have results of their own.
        length_ms: of a window, or the longest time between two events that count in one result, milliseconds.
        reads: pipes whose events it reads.
    """

    name: str
    lateness_ms: int
    key: str
    length_ms: int
    reads: tuple[str, ...] = field(default=(FLIGHTS,), init=False)

    def late(self, events: Mapping[str, DayEvent], watermarks_ms: Mapping[str, int | None]) -> frozenset[str]:
        """Ids of the events that are late. A cancelled flight is left out before its time is looked at.

        Args:
            events: by id.
            watermarks_ms: id to the watermark before the event, see `watermarks`.
        """
        return frozenset(
            name
            for name, watermark_ms in watermarks_ms.items()
            if watermark_ms is not None
            and _is_read(events[name])
            and events[name].time_ms < watermark_ms - self.lateness_ms
        )

    @abstractmethod
    def results(self, counted: Iterable[DayEvent]) -> dict[Place, ExpectedResult]:
        """All results.

        Args:
            counted: the events of the pipes that it reads, without late ones.
        """

    @abstractmethod
    def place(self, body: Mapping[str, Any]) -> Place:
        """What identifies a result, from its data."""

    def _by_key(self, counted: Iterable[DayEvent]) -> dict[str, list[DayEvent]]:
        """Value of the key to its events, without cancelled flights."""
        events: dict[str, list[DayEvent]] = defaultdict(list)
        for event in counted:
            if _is_read(event):
                events[getattr(event, self.key)].append(event)
        return events


class WindowStep(ExpectedStep):
    """A step with windows that follow each other."""

    def results(self, counted: Iterable[DayEvent]) -> dict[Place, ExpectedResult]:
        """See `ExpectedStep`."""
        results: dict[Place, ExpectedResult] = {}
        for key, events in self._by_key(counted).items():
            delays: dict[int, list[int]] = defaultdict(list)
            for event in events:
                delays[event.time_ms - event.time_ms % self.length_ms].append(_delay(event))
            for start_ms, values in delays.items():
                end_ms = start_ms + self.length_ms
                body = {**_window(start_ms, end_ms), self.key: key, **_totals(values)}
                results[self.place(body)] = ExpectedResult(end_ms, body)
        return results

    def place(self, body: Mapping[str, Any]) -> Place:
        """See `ExpectedStep`."""
        return body["window_end"], body[self.key]


class EachStep(ExpectedStep):
    """A step with a result for each flight, over those of its key before it."""

    def results(self, counted: Iterable[DayEvent]) -> dict[Place, ExpectedResult]:
        """See `ExpectedStep`."""
        results: dict[Place, ExpectedResult] = {}
        for key, events in self._by_key(counted).items():
            for event in events:
                start_ms = event.time_ms - self.length_ms
                values = [_delay(other) for other in events if start_ms <= other.time_ms <= event.time_ms]
                window = _window(start_ms, event.time_ms)
                body = {**window, "event": event.id, self.key: key, **_totals(values)}
                results[self.place(body)] = ExpectedResult(event.time_ms + 1, body)
        return results

    def place(self, body: Mapping[str, Any]) -> Place:
        """See `ExpectedStep`."""
        return (body["event"],)


@dataclass(frozen=True, slots=True)
class JoinStep(ExpectedStep):
    """A step that joins flights with weather. A flight without weather has a result, too."""

    reads: tuple[str, ...] = field(default=(FLIGHTS, WEATHER), init=False)

    def results(self, counted: Iterable[DayEvent]) -> dict[Place, ExpectedResult]:
        """See `ExpectedStep`."""
        results: dict[Place, ExpectedResult] = {}
        for events in self._by_key(counted).values():
            all_weather = [event for event in events if isinstance(event, WeatherEvent)]
            for event in events:
                if isinstance(event, FlightEvent):
                    for result in self._of_flight(event, all_weather):
                        results[self.place(result.body)] = result
        return results

    def place(self, body: Mapping[str, Any]) -> Place:
        """See `ExpectedStep`."""
        return body["event"], body["with"] or ""

    def _of_flight(
        self, flight: FlightEvent, all_weather: Iterable[WeatherEvent]
    ) -> Iterator[ExpectedResult]:
        departure = {
            "event": flight.id,
            self.key: flight.origin,
            "carrier": flight.carrier,
            "delay": flight.delay,
        }
        partners = [
            weather for weather in all_weather if abs(weather.time_ms - flight.time_ms) <= self.length_ms
        ]
        for weather in partners:
            values = {"with": weather.id, "temp": weather.temp, "wind": weather.wind}
            yield ExpectedResult(max(flight.time_ms, weather.time_ms) + 1, departure | values)
        if not partners:
            null_fields = dict.fromkeys(("with", "temp", "wind"))
            yield ExpectedResult(flight.time_ms + self.length_ms + 1, departure | null_fields)


def watermarks(log: PipeLog, events: Mapping[str, DayEvent]) -> dict[str, int | None]:
    """Id to the watermark before the first record of an event, milliseconds since 1970 UTC; None: there was none yet.

    Args:
        log: of a pipe.
        events: by id.
    """
    return _follow(log, events)[0]


def closed_until_ms(logs: Iterable[PipeLog], events: Mapping[str, DayEvent], lateness_ms: int) -> int:
    """Time until which a step closes without any more events, milliseconds since 1970 UTC: all partitions passed it.

    Args:
        logs: of the pipes that the step reads.
        events: by id.
        lateness_ms: of the step, milliseconds.
    """
    latest_ms = [time_ms for log in logs for time_ms in _follow(PipeLog(log.events), events)[1].values()]
    return min(latest_ms, default=0) - lateness_ms


def _follow(log: PipeLog, events: Mapping[str, DayEvent]) -> tuple[dict[str, int | None], dict[int, int]]:
    """Id to the watermark before an event, and partition to the watermark after all of them."""
    before_ms: dict[str, int | None] = {}
    highest_ms: dict[int, int] = {}
    # A heartbeat comes after the record that it names, and before the next one.
    steps: list[tuple[int, int, int, str, int]] = [
        *((event.partition, event.offset, 0, event.id, events[event.id].time_ms) for event in log.events),
        *((beat.partition, beat.after, 1, "", beat.watermark_ms) for beat in log.heartbeats),
    ]
    for partition, _, is_heartbeat, name, time_ms in sorted(steps):
        if not is_heartbeat:
            before_ms.setdefault(name, highest_ms.get(partition))
        highest_ms[partition] = max(time_ms, highest_ms.get(partition, time_ms))
    return before_ms, highest_ms


def _is_read(event: DayEvent) -> bool:
    """Whether steps read it: they leave out cancelled flights."""
    return isinstance(event, WeatherEvent) or event.delay is not None


def _delay(event: DayEvent) -> int:
    assert isinstance(event, FlightEvent)
    assert event.delay is not None
    return event.delay


def _window(start_ms: int, end_ms: int) -> dict[str, str]:
    return {"window_start": rfc3339(start_ms).decode(), "window_end": rfc3339(end_ms).decode()}


def _totals(delays: Sequence[int]) -> dict[str, Any]:
    return {
        "flights": len(delays),
        "late": sum(delay >= 15 for delay in delays),
        "total": sum(delays),
        "worst": max(delays),
        "mean": sum(delays) / len(delays),
    }
