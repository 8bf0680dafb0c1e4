"""A restore begins the stream's offsets at 0 again, so destinations that know events by them alone are refused."""

import asyncio
import uuid
from typing import Any

import orjson
import pytest

from hifi.control.declaration import Declaration
from hifi.control.principals.audit import AuditEntry
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.delivery.destination_follower import DestinationFollower
from hifi.delivery.destination_state import (
    EGEST,
    DestinationName,
    DestinationState,
    StateChange,
    position_record,
    state_record,
)
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, read_registry, stream_record
from hifi.pipe.revision import NextRevision, body_record, pipe_record
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured
from hifi_cli.backup.restore import restore
from hifi_cli.backup.restored_numbers import RestoredNumbers
from hifi_cli.backup.state import State, StateRecord, check, effective, pipes_of
from hifi_cli.backup.state_reader import read_state
from hifi_infra.kafka.stream_setup import prepare

LAKE = {"warehouse": "/srv/lake", "table": "a.b", "columns": {"id": "int"}}
ROWS = {"name": "rows", "kind": "iceberg", "settings": LAKE | {"mode": "upsert", "key": ["id"]}}
APPENDED = {"name": "rows", "kind": "iceberg", "settings": LAKE}
WEB = {"name": "web", "url": "http://127.0.0.1:9/"}
ENTRY = AuditEntry("ann", "restore", "stream/s", 1)
WITHIN_S = 300


def pipe(name: str, *destinations: dict[str, Any]) -> Pipe:
    return Pipe.model_validate(
        {"pipe": name, "source": {"keys": [{"env": name}]}, "destinations": list(destinations)}
    )


def _state_record(topic: str, record: Record, offset: int = 0) -> StateRecord:
    assert record.key is not None
    assert record.value is not None
    return StateRecord(topic, 0, offset, record.key.decode(), orjson.loads(record.value))


def _state(*records: StateRecord) -> State:
    return State("s", "", 1, 1, list(records))


@pytest.fixture
async def topics(kafka: str) -> Topics:
    topics = Topics(f"s{uuid.uuid4().hex[:8]}")
    await prepare(kafka, topics, 1)
    return topics


async def until_published(kafka: str, topics: Topics, pipes: set[str]) -> None:
    """Kafka shows a transaction some time after it has acknowledged the commit."""
    async with asyncio.timeout(WITHIN_S):
        while set((await read_registry(kafka, topics)).pipes) != pipes:
            await asyncio.sleep(0.05)


async def test_destinations_that_know_events_by_their_offset_alone_are_refused_by_default(
    kafka: str, topics: Topics
) -> None:
    state = _state(_state_record("pipes", pipe_record(pipe("a", WEB, ROWS), 1)))
    with pytest.raises(
        Misconfigured, match=r"(?s)nothing was restored.*a/rows: with `mode: upsert`.*--fresh"
    ):
        await restore(state, kafka, topics, None, ENTRY, force=True, fresh_destinations=False)
    assert (await read_registry(kafka, topics)).pipes == {}
    await restore(state, kafka, topics, None, ENTRY, force=False, fresh_destinations=True)
    await until_published(kafka, topics, {"a"})


async def test_destinations_that_know_the_log_need_no_declaration(kafka: str, topics: Topics) -> None:
    state = _state(_state_record("pipes", pipe_record(pipe("a", WEB, APPENDED), 1)))
    await restore(state, kafka, topics, None, ENTRY, force=False, fresh_destinations=False)
    await until_published(kafka, topics, {"a"})


async def test_a_colour_is_refused_in_any_case(kafka: str, topics: Topics) -> None:
    await publish(kafka, topics, [stream_record(1, coloured=True)])
    state = _state(_state_record("pipes", pipe_record(pipe("a", ROWS), 1)))
    with pytest.raises(Misconfigured, match="the stream has two colours"):
        await restore(state, kafka, topics, None, ENTRY, force=True, fresh_destinations=True)
    assert (await read_registry(kafka, topics)).pipes == {}


async def test_a_pipe_that_was_paused_is_paused_although_the_stream_has_it_already(
    kafka: str, topics: Topics
) -> None:
    await publish(kafka, topics, [pipe_record(pipe("a", WEB), 1)])
    state = _state(_state_record("pipes", pipe_record(pipe("a", WEB), 1, paused=True)))
    await restore(state, kafka, topics, None, ENTRY, force=True, fresh_destinations=False)
    async with asyncio.timeout(WITHIN_S):
        while not (await read_registry(kafka, topics)).pipes["a"].paused:
            await asyncio.sleep(0.05)


def _parked(destination: str, by: str, state: DestinationState = DestinationState.PARKED) -> Record:
    return state_record(DestinationName("a", destination), StateChange(state, by, "moves", 7))


async def test_a_destination_that_an_operator_parked_is_parked_after_a_restore(
    kafka: str, topics: Topics
) -> None:
    producer = Producer(kafka, "test")
    await producer.start()
    await producer.send_and_wait(topics.destinations, 0, [_parked("web", "operator"), _parked("rows", EGEST)])
    await producer.stop()
    await publish(kafka, topics, [pipe_record(pipe("a", WEB), 1)])
    state = await read_state(kafka, topics)
    new_topics = Topics(f"s{uuid.uuid4().hex[:8]}")
    await prepare(kafka, new_topics, 1)
    counts = await restore(state, kafka, new_topics, None, ENTRY, force=False, fresh_destinations=False)
    assert counts == {"pipes": 1, "destinations": 1}
    await until_published(kafka, new_topics, {"a"})
    follower = DestinationFollower(kafka, new_topics, "test")
    await follower.start()
    async with asyncio.timeout(WITHIN_S):
        while not follower.states.all():
            await follower.refresh()
    await follower.stop()
    assert follower.states.all() == {
        DestinationName("a", "web"): StateChange(DestinationState.PARKED, "operator", "moves", 7)
    }


def test_of_destinations_only_what_people_parked_is_in_a_backup() -> None:
    position = position_record(DestinationName("a", "web"), 3, 17)
    records = [
        _parked("web", "operator"),
        position,
        _parked("rows", EGEST),
        _parked("mail", "operator"),
        _parked("mail", "operator", DestinationState.ACTIVE),
        _parked("old", "operator", DestinationState.EXPIRING),
        Record(b"a/odd", b"[1]", []),
    ]
    counting = effective(
        "destinations",
        [_state_record("destinations", record, offset) for offset, record in enumerate(records)],
    )
    assert [record.key for record in counting] == ["a/web"]
    check(State("s", "", 1, 1, counting))
    with pytest.raises(Misconfigured, match="destinations"):
        check(_state(StateRecord("destinations", 0, 1, "a/web", {"state": "?"})))


def test_a_declaration_that_paused_a_pipe_names_the_one_that_brought_it() -> None:
    brought = Declaration("a", pipe("a", WEB), "ann", 1, number=4)
    paused = brought.with_pause("ann", 2, paused=True)
    numbers = RestoredNumbers(declared={4: 11})
    status = RolloutStatus("a", 4, "ann", RolloutState.ROLLED_BACK, None, 0, "", 1)
    restored_declaration = numbers.declaration(_state_record("declared", paused.record(), 5))
    restored_status = numbers.referring(_state_record("rollouts", status.record()))
    assert restored_status is not None
    assert restored_declaration.value["pipe_from"] == restored_status.value["declaration"] == 11


def test_pipes_of_rollouts_and_declarations_count() -> None:
    state = _state(
        _state_record("pipes", body_record(pipe("a", ROWS), 2)),
        _state_record("pipes", pipe_record(pipe("a", WEB), 1, following=NextRevision(revision=2, share=1))),
        _state_record("declared", Declaration("b", pipe("b", ROWS), "ann", 1).record()),
    )
    destinations = {(restored.pipe, restored.destinations[0].name) for restored in pipes_of(state)}
    assert destinations == {("a", "web"), ("a", "rows"), ("b", "rows")}
