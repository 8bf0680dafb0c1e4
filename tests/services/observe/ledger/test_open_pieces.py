"""What is open in many minutes is counted once, and again only where a minute has changed."""

import pytest

from hifi_observe.ledger import open_pieces
from hifi_observe.ledger.open_events import OpenEvents
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.pipe_minute_stages import PipeMinuteStages
from hifi_observe.ledger.stage import EventStage

MINUTES = 1000
COUNTED: list[int] = []
"""Minutes whose stages were read."""


class CountedStages(PipeMinuteStages):
    """Notes which minutes are read."""

    __slots__ = ()

    def __init__(self, pipe_minute: PipeMinute) -> None:
        COUNTED.append(pipe_minute.minute)
        super().__init__(pipe_minute)


def parked_minute(minute: int) -> PipeMinute:
    """A closed minute with two events that are parked at a destination."""
    pipe_minute = PipeMinute("orders", minute)
    stages = [EventStage(kind) for kind in ("raw", "normalized", "enriched")]
    stages += [
        EventStage("wanted", "desk"),
        EventStage("retry-in", "desk", 1),
        EventStage("parked", "desk", 1),
    ]
    sequences = [2 * minute, 2 * minute + 1]
    pipe_minute.show(stages, "e", sequences)
    unresolved = pipe_minute.seen[EventStage("raw")].copy()
    pipe_minute.close({}, unresolved, {})
    return pipe_minute


@pytest.fixture
def parked(monkeypatch: pytest.MonkeyPatch) -> tuple[OpenEvents, list[PipeMinute]]:
    """Open events of many minutes, looked at once."""
    monkeypatch.setattr(open_pieces, "PipeMinuteStages", CountedStages)
    events, minutes = OpenEvents(), [parked_minute(minute) for minute in range(MINUTES)]
    events.restore(minutes)
    COUNTED.clear()
    assert parked_at_desk(events) == 2 * MINUTES
    assert sorted(COUNTED) == list(range(MINUTES)), "each once"
    COUNTED.clear()
    return events, minutes


def parked_at_desk(events: OpenEvents) -> int:
    """Number of deliveries that are parked."""
    looks = events.look(lambda _: ["desk"])
    return looks["orders"]["desk"].numbers["parked"] if looks else 0


def test_what_has_not_changed_is_not_counted_again(parked: tuple[OpenEvents, list[PipeMinute]]) -> None:
    events, _ = parked
    assert parked_at_desk(events) == 2 * MINUTES
    assert COUNTED == []


def test_only_the_minutes_that_changed_are_counted_again(
    parked: tuple[OpenEvents, list[PipeMinute]],
) -> None:
    events, minutes = parked
    for minute in (0, 500):
        minutes[minute].show([EventStage("delivered", "desk")], "e", [2 * minute])
    assert parked_at_desk(events) == 2 * MINUTES - 2
    assert sorted(COUNTED) == [0, 500]


def test_another_destination_is_counted_everywhere(parked: tuple[OpenEvents, list[PipeMinute]]) -> None:
    events, _ = parked
    looks = events.look(lambda _: ["desk", "new"])["orders"]
    assert set(looks) == {"desk"}, "no event wants the new one"
    assert sorted(COUNTED) == list(range(MINUTES))


def test_minutes_end_one_after_the_other_until_nothing_is_open(
    parked: tuple[OpenEvents, list[PipeMinute]],
) -> None:
    events, minutes = parked
    for minute, pipe_minute in enumerate(minutes):
        pipe_minute.show([EventStage("delivered", "desk")], "e", [2 * minute, 2 * minute + 1])
        if minute % 100 == 99:
            assert parked_at_desk(events) == 2 * (MINUTES - 1 - minute)
    assert events.look(lambda _: ["desk"]) == {}


def test_minutes_that_are_forgotten_are_no_longer_open(parked: tuple[OpenEvents, list[PipeMinute]]) -> None:
    events, minutes = parked
    for pipe_minute in minutes[1:]:
        events.forget(pipe_minute)
    assert parked_at_desk(events) == 2
    events.forget(minutes[0])
    assert events.look(lambda _: ["desk"]) == {}
