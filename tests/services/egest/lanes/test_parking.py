"""When a destination that fails is parked, and when it is active again."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from hifi.delivery.destination_state import (
    EGEST,
    DestinationName,
    DestinationState,
    DestinationStates,
    StateChange,
    state_record,
)
from hifi.kafka.topics import Tier
from hifi_egest.lanes import parking
from hifi_egest.lanes.parking import LaneParking
from hifi_egest.lanes.state_publication import StatePublication
from hifi_egest.policy.outcome import DeadLettered, Parked, RetryLater

LATER = RetryLater(Tier("5s", 5), "status-503", "the destination answers 503")
NAME = DestinationName("flights", "d")


class Lane:
    """The parking of one lane, with a clock of its own; `published` counts for it once it was `read`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(parking, "monotonic_s", lambda: self.now_s)
        self.states = DestinationStates()
        self.published: list[StateChange] = []
        self.replaced: list[StateChange] = []
        settings = SimpleNamespace(egest_park_bytes=1000, egest_park_after_s=60)
        resources: Any = SimpleNamespace(
            states=self.states,
            settings=settings,
            publish_state=self._publish,
        )
        self.parking = LaneParking("flights", "d", resources)

    def _publish(self, _: DestinationName, earlier_change: StateChange, change: StateChange) -> None:
        self.published.append(change)
        self.replaced.append(earlier_change)

    def read(self, change: StateChange | None = None) -> None:
        record = state_record(NAME, change or self.published[-1])
        self.states.take(record.key, record.value, 0)
        self.parking.refresh()


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> Lane:
    return Lane(monkeypatch)


def test_it_is_parked_beyond_the_byte_budget_once_every_instance_can_know(lane: Lane) -> None:
    assert lane.parking.outcome(LATER, 999) is LATER
    assert lane.published == []
    assert lane.parking.outcome(LATER, 1) is LATER
    assert [(change.state, change.by) for change in lane.published] == [(DestinationState.PARKED, EGEST)]
    assert lane.parking.outcome(LATER, 1) is LATER  # not read back yet
    assert len(lane.published) == 1
    lane.read()
    assert lane.parking.outcome(LATER, 1) == Parked(LATER.reason, LATER.detail)
    assert lane.parking.deferral is None


def test_it_is_parked_when_nothing_succeeded_for_too_long(lane: Lane) -> None:
    lane.parking.outcome(LATER, 1)
    lane.now_s += 59
    lane.parking.outcome(LATER, 1)
    assert lane.published == []
    lane.parking.succeeded()
    lane.now_s += 59
    lane.parking.outcome(LATER, 1)
    assert lane.published == []
    lane.now_s += 60
    lane.parking.outcome(LATER, 1)
    assert [change.state for change in lane.published] == [DestinationState.PARKED]


def test_a_success_ends_what_egest_began_on_any_instance_and_nothing_that_an_operator_began(
    lane: Lane,
) -> None:
    lane.read(StateChange(DestinationState.PARKED, EGEST))
    assert lane.parking.failing
    lane.parking.succeeded()
    assert [change.state for change in lane.published] == [DestinationState.ACTIVE]
    lane.read(StateChange(DestinationState.PARKED, "operator"))
    assert lane.parking.deferral is not None
    lane.now_s += 10
    lane.parking.succeeded()
    assert len(lane.published) == 1


class ReadDestinations:
    """The states that a refresh reads, if Kafka answers."""

    def __init__(self, change: StateChange) -> None:
        self.states = DestinationStates()
        self.unread = change
        self.error: Exception | None = None

    async def refresh(self) -> None:
        if self.error is not None:
            raise self.error
        record = state_record(NAME, self.unread)
        self.states.take(record.key, record.value, 0)


@pytest.mark.parametrize("by_operator", [False, True])
async def test_a_state_of_egest_replaces_none_that_an_operator_gave_meanwhile(
    lane: Lane, by_operator: bool
) -> None:
    parked = StateChange(DestinationState.PARKED, EGEST, "test", 1)
    lane.read(parked)
    lane.parking.succeeded()
    [active], [earlier_change] = lane.published, lane.replaced
    newest = StateChange(DestinationState.PARKED, "operator", "test", 2) if by_operator else parked
    destinations: Any = ReadDestinations(newest)
    written: list[StateChange] = []
    publication = StatePublication(destinations, lambda _, change: written.append(change))
    publication.publish(NAME, earlier_change, active)
    await asyncio.gather(*publication._tasks)
    assert written == ([] if by_operator else [active])
    destinations.error = KafkaError("away")
    publication.publish(NAME, newest, active)
    await asyncio.gather(*publication._tasks)
    assert written == ([] if by_operator else [active])


def test_an_outage_begins_anew_after_a_resumption(lane: Lane) -> None:
    lane.parking.outcome(LATER, 1000)
    lane.read()
    lane.now_s += 1000
    lane.read(StateChange(DestinationState.ACTIVE, "operator"))
    assert lane.parking.outcome(LATER, 999) is LATER
    assert len(lane.published) == 1


def test_a_dead_letter_stays_one(lane: Lane) -> None:
    lane.read(StateChange(DestinationState.PARKED, EGEST))
    dead_letter = DeadLettered("gave-up", "too old")
    assert lane.parking.outcome(dead_letter, 1) is dead_letter
