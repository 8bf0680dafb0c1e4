"""Actions of a person on the colours: recorded in a real Kafka, and refused when they must wait."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.structs import OffsetAndMetadata
from tests.support.colours.coloured_kafka import ColoursUnderTest

from hifi.control.action import ActionKind, ActionState
from hifi.control.action_right import ActionRefused
from hifi.control.verdict import Condition
from hifi.delivery.colours import NAMES, Colour, Colours, ColourSetup, ColourState, FrontAddress
from hifi.kafka.topics import ControlTopics, Topics
from hifi.pipe.issued_key import IssuedKey, IssuedKeys, issued_key
from hifi.pipe.model import Pipe
from hifi.pipe.registry import RegistrySnapshot, publish
from hifi.pipe.revision import PipeRevision, pipe_record
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.colours import operations
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.key_copy import KeyStream
from hifi_infra.colours.new_setup import SetupChange
from hifi_infra.colours.operations import ColourOperations, _readers_of_enriched, _remaining
from hifi_infra.colours.runtime import ColourFolders
from hifi_infra.kafka.backlog import SERVICES, ConsumerBacklog
from hifi_infra.kafka.stream_setup import prepare, put_in_force
from hifi_infra.mesh import running
from hifi_infra.mesh.running import RunningMesh
from hifi_infra.ports import free_port

TO_GREEN = {"blue": 0, "green": 10_000}
TABLE = {"name": "rows", "kind": "iceberg", "settings": {"warehouse": "/srv/lake", "table": "a.b"}}
STEP_SOURCE = {"kind": "step", "from": "orders", "key": {"id": "string"}, "first": "60s"}
WITHIN_S = 60


def pipe_of(name: str, *destinations: Mapping[str, object], **source: object) -> Pipe:
    """A pipe, by default with the source `http`."""
    body = {"pipe": name, "source": source or {"keys": [{"env": "K"}]}, "destinations": list(destinations)}
    return Pipe.model_validate(body)


def key_stream(records: Sequence[Record], stored_ms: int = 1) -> KeyStream:
    """Write keys whose records were stored at a time, milliseconds since 1970 UTC."""
    filled = KeyStream()
    for offset, record in enumerate(records):
        stored = SimpleNamespace(key=record.key, value=record.value, offset=offset, timestamp=stored_ms)
        filled.take(cast(ConsumerRecord, stored))
    return filled


async def until(condition: Callable[[], object]) -> None:
    """Poll until a condition holds."""
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_shift_is_recorded_as_an_action_and_changes_the_shares(colours: ColoursUnderTest) -> None:
    await colours.judge(blue=Condition.STABLE, green=Condition.STABLE)
    await colours.operations().shift(TO_GREEN, "because")
    recorded_colours = await colours.operations().colours()
    assert (recorded_colours.shares, recorded_colours.by) == (TO_GREEN, "me")
    assert await colours.states() == {"blue": ColourState.IDLE, "green": ColourState.ACTIVE}
    (action,) = await colours.actions()
    assert (action.kind, action.state, action.reason) == (ActionKind.SHIFT, ActionState.DONE, "because")


async def test_a_shift_for_maintenance_waits_until_both_colours_are_stable(colours: ColoursUnderTest) -> None:
    for blue, green, message in (
        (Condition.STABLE, Condition.UNSTABLE, "green: .*unstable.*a reason"),
        (Condition.UNSTABLE, Condition.STABLE, "blue: .*unstable"),
        (Condition.UNKNOWN, Condition.STABLE, "blue: the health is unknown"),
    ):
        await colours.judge(blue=blue, green=green)
        with pytest.raises(ActionRefused, match=message):
            await colours.operations().shift(TO_GREEN, "because")
    assert (await colours.operations().colours()).by == "test"
    assert await colours.actions() == []


async def test_a_shift_for_recovery_does_not_wait_for_a_verdict(colours: ColoursUnderTest) -> None:
    await colours.operations().shift(TO_GREEN, "blue is lost", kind=ActionKind.RECOVER)
    assert (await colours.operations().colours()).shares == TO_GREEN
    assert [action.kind for action in await colours.actions()] == [ActionKind.RECOVER]


async def test_a_forced_shift_names_who_forced_it(colours: ColoursUnderTest) -> None:
    await colours.judge(blue=Condition.UNSTABLE, green=Condition.UNSTABLE)
    await colours.operations(forced=True).shift(TO_GREEN, "because")
    assert [action.forced_by for action in await colours.actions()] == ["me"]


async def test_a_shift_waits_until_a_rollout_has_ended_unless_a_colour_is_broken(
    colours: ColoursUnderTest,
) -> None:
    topics = Topics(colours.stream, ())
    await prepare(colours.kafka, topics, 1)
    for url, share in (("http://127.0.0.1:1/", None), ("http://127.0.0.1:2/", 1000)):
        source, destination = {"keys": [{"env": "K"}]}, {"name": "d", "url": url}
        pipe = Pipe.model_validate({"pipe": "orders", "source": source, "destinations": [destination]})
        await put_in_force(colours.kafka, topics, [pipe], share=share)
    for folder in colours.folders.values():
        mesh = running.read(folder)
        assert mesh is not None
        running.write(folder, mesh.model_copy(update={"kafka": colours.kafka}))
    await colours.judge(blue=Condition.STABLE, green=Condition.STABLE)
    for name, folder in colours.folders.items():
        advice = f"orders runs in {name}: end it first with `hifi rollout promote PIPE --data {folder}` or"
        with pytest.raises(Retryable, match=advice):
            await colours.operations().shift(TO_GREEN, "because")
    assert (await colours.operations().colours()).by == "test"
    await colours.operations().shift(TO_GREEN, "because", kind=ActionKind.RECOVER)
    assert (await colours.operations().colours()).shares == TO_GREEN


async def test_a_colour_that_is_not_ready_gets_no_requests(colours: ColoursUnderTest) -> None:
    colours.ready = False
    with pytest.raises(Retryable, match="green is not ready: ingest-1: Kafka is away"):
        await colours.operations().shift(TO_GREEN, "because", kind=ActionKind.RECOVER)
    assert (await colours.operations().colours()).by == "test"


async def test_a_colour_with_requests_does_not_sleep(colours: ColoursUnderTest) -> None:
    with pytest.raises(Misconfigured, match="hifi colour shift green"):
        await colours.operations().sleep("blue", "because", 1, print)
    assert (await colours.states())["blue"] is ColourState.ACTIVE


async def test_a_colour_gets_another_setup_only_when_it_wakes_and_the_action_says_which(
    colours: ColoursUnderTest,
) -> None:
    change = SetupChange(settings={"HIFI_ENRICH_DRIVER_MEMORY": "2g"})
    with pytest.raises(Misconfigured, match="hifi colour sleep green"):
        await colours.operations().wake("green", "because", 60, change)
    with pytest.raises(Misconfigured, match="no jars of Kafka 1"):
        await colours.operations().wake("green", "because", 60, SetupChange(kafka_version="1"))
    assert await colours.actions() == []
    await colours.write(green=ColourState.ASLEEP)
    assert await colours.operations().wake("green", "because", 60, change) is None
    recorded_colours = (await colours.operations().colours()).colours
    assert recorded_colours["green"].setup == ColourSetup(settings={"HIFI_ENRICH_DRIVER_MEMORY": "2g"})
    assert (recorded_colours["green"].state, recorded_colours["blue"].setup) == (
        ColourState.IDLE,
        ColourSetup(),
    )
    assert [action.step for action in await colours.actions()] == [
        "green wakes with HIFI_ENRICH_DRIVER_MEMORY=2g"
    ]


async def test_no_colour_wakes_beside_a_pipe_that_would_lose_its_events(colours: ColoursUnderTest) -> None:
    topics = Topics(colours.stream, ())
    await prepare(colours.kafka, topics, 1)
    lake = {"warehouse": "/srv/lake", "table": "a.b", "mode": "upsert", "key": ["id"]}
    destination = {"name": "rows", "kind": "iceberg", "settings": lake | {"columns": {"id": "int"}}}
    pipe = Pipe.model_validate(
        {"pipe": "orders", "source": {"keys": [{"env": "K"}]}, "destinations": [destination]}
    )
    await publish(colours.kafka, topics, [pipe_record(pipe, 1)])
    mesh = running.read(colours.folders["blue"])
    assert mesh is not None
    running.write(colours.folders["blue"], mesh.model_copy(update={"kafka": colours.kafka}))
    await colours.write(green=ColourState.ASLEEP)
    for change in (None, SetupChange(partitions=8)):
        with pytest.raises(Misconfigured, match="orders/rows: with `mode: upsert`"):
            await colours.operations().wake("green", "because", 60, change)
    assert (await colours.states())["green"] is ColourState.ASLEEP
    assert await colours.actions() == []


async def test_a_colour_that_wakes_has_the_write_keys_of_the_other_one(
    colours: ColoursUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_key, changed_key, revoked_key, new_key = (
        issued_key(f"{number}" * 40, "orders", origins=(), expires_us=None, author="t", at_us=1)
        for number in range(4)
    )
    keys = {
        "blue:1": [kept_key, changed_key.expiring(5), new_key],
        "green:1": [kept_key, changed_key, revoked_key],
    }
    topics = {bootstrap: [key.record() for key in issued_keys] for bootstrap, issued_keys in keys.items()}
    topic = Topics(colours.stream).write_keys

    async def read(bootstrap: str, _: str, read_topic: str) -> KeyStream:
        assert read_topic == topic
        return key_stream(topics[bootstrap])

    async def write(bootstrap: str, _: str, *topic_records: tuple[str, Sequence[Record]]) -> None:
        [(written_topic, records)] = topic_records
        assert (bootstrap, written_topic) == ("green:1", topic)
        topics[bootstrap] += records

    async def kafka(_: ColourFolders, name: str) -> str:
        return f"{name}:1"

    monkeypatch.setattr(operations, "read_key_stream", read)
    monkeypatch.setattr(operations, "write_records", write)
    monkeypatch.setattr(operations, "read_registry", AsyncMock(return_value=SimpleNamespace(pipes={})))
    monkeypatch.setattr(ColourFolders, "kafka", kafka)
    await colours.write(green=ColourState.ASLEEP)
    await colours.operations().wake("green", "because", 60)
    followed = IssuedKeys()
    for record in topics["green:1"]:
        followed.take(record.key, record.value, 0)
    assert followed.by_id == {key.id: key for key in keys["blue:1"]}
    await colours.operations().wake("green", "because", 60)
    assert len(topics["green:1"]) == 6, "what both have is not written again"
    assert not (await colours.operations().colours()).colours["green"].awaits_keys


@dataclass
class RecordedKeys:
    """Two colours in memory: green woke at 7 ms and awaits the write keys of blue."""

    topics: dict[str, list[Record]]
    """Kafka to the records of its write keys."""
    records: list[Colours]
    began_ms: dict[str, int]
    """Kafka to when it stored its records, milliseconds since 1970 UTC."""
    operations: ColourOperations

    def keys(self, name: str) -> Mapping[str, IssuedKey]:
        """The keys that a colour accepts."""
        return key_stream(self.topics[f"{name}:1"]).keys.by_id


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RecordedKeys:
    green = Colour(0, ColourState.IDLE, (), "", woken_ms=7, awaits_keys=True)
    record = Colours({"blue": Colour(10_000, ColourState.ACTIVE, (), ""), "green": green}, (), 1, "test")
    under_test = RecordedKeys(
        {},
        [record],
        {"blue:1": 1, "green:1": 1},
        ColourOperations("k", Topics("s"), ColourFolders(dict.fromkeys(NAMES, tmp_path)), "me"),
    )

    async def read(bootstrap: str, _: str, __: str) -> KeyStream:
        return key_stream(under_test.topics[bootstrap], under_test.began_ms[bootstrap])

    async def write(bootstrap: str, _: str, *topic_records: tuple[str, Sequence[Record]]) -> None:
        [(_, key_records)] = topic_records
        under_test.topics[bootstrap] += key_records

    async def write_colours(_: ColourOperations, change: Callable[[Colours], Colours]) -> None:
        under_test.records.append(change(under_test.records[-1]))

    async def newest(_: ColourOperations) -> Colours:
        return under_test.records[-1]

    async def kafka(_: ColourFolders, name: str) -> str:
        return f"{name}:1"

    monkeypatch.setattr(operations, "read_key_stream", read)
    monkeypatch.setattr(operations, "write_records", write)
    monkeypatch.setattr(ColourOperations, "_write", write_colours)
    monkeypatch.setattr(ColourOperations, "colours", newest)
    monkeypatch.setattr(ColourFolders, "kafka", kafka)
    return under_test


async def test_keys_that_were_issued_in_a_colour_since_it_woke_stay_while_it_awaits_those_of_the_other_one(
    recorded: RecordedKeys,
) -> None:
    revoked_key, kept_key, new_key = (
        issued_key(f"{number}" * 40, "orders", origins=(), expires_us=None, author="t", at_us=at_us)
        for number, at_us in enumerate((6_999, 7_000, 1))
    )
    recorded.topics |= {"blue:1": [new_key.record()], "green:1": [revoked_key.record(), kept_key.record()]}
    assert not await recorded.operations.copy_keys("blue"), "green has keys from before its sleep"
    for _ in range(2):
        assert await recorded.operations.copy_keys("green", if_awaited=True)
    assert recorded.keys("green") == {key.id: key for key in (kept_key, new_key)}
    first_record, *later_records = recorded.records
    assert later_records == [first_record.with_keys("green", 7)]


@pytest.mark.parametrize("has_new_key", [False, True])
async def test_the_new_stream_of_a_colour_that_lost_its_data_revokes_no_key(
    recorded: RecordedKeys, has_new_key: bool
) -> None:
    old_key, new_key = (
        issued_key(f"{number}" * 40, "orders", origins=(), expires_us=None, author="t", at_us=at_us)
        for number, at_us in enumerate((1, 9_000))
    )
    both = [new_key.record()] if has_new_key else []
    recorded.topics |= {"blue:1": list(both), "green:1": [old_key.record(), *both]}
    recorded.began_ms["blue:1"] = 9
    with pytest.raises(Retryable, match=f"not say that {old_key.id} was revoked"):
        await recorded.operations.copy_keys("green", if_awaited=True)
    assert old_key.id in recorded.keys("green")
    assert recorded.records[-1].colours["green"].awaits_keys


async def test_a_person_decides_that_the_keys_of_the_colour_count_that_still_awaits_those_of_the_other_one(
    recorded: RecordedKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the other one lost its data, so that it has to get them itself."""
    recorded.records.append(recorded.records[-1].with_shares(TO_GREEN, 8, "test"))
    check, act = AsyncMock(), AsyncMock()
    for name in ("drain", "_left_open"):
        monkeypatch.setattr(ColourOperations, name, AsyncMock(return_value=()))
    monkeypatch.setattr(ColourOperations, "_act", act)
    monkeypatch.setattr(ColourFolders, "check_sleep", check)
    monkeypatch.setattr(ColourFolders, "runs", AsyncMock(return_value=False))
    monkeypatch.setattr(operations, "_SETTLE_S", 0)
    with pytest.raises(Misconfigured, match="with --force"):
        await recorded.operations.sleep("blue", "because", 1, print)
    await replace(recorded.operations, forced=True).sleep("blue", "because", 1, print)
    assert act.await_args is not None
    asleep = act.await_args.args[3](recorded.records[-1])
    assert asleep.colours["blue"].state is ColourState.ASLEEP
    assert not asleep.colours["green"].awaits_keys
    woken = asleep.with_state("blue", ColourState.IDLE, 9, "test")
    recorded.records.append(woken)
    key = issued_key("k" * 40, "orders", origins=(), expires_us=None, author="t", at_us=1)
    recorded.topics |= {"blue:1": [], "green:1": [key.record()]}
    assert await recorded.operations.copy_keys("blue", if_awaited=True)
    assert recorded.keys("blue") == {key.id: key}


async def test_a_colour_that_is_asleep_may_be_told_to_sleep_while_the_other_one_awaits_its_keys(
    recorded: RecordedKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    shifted = recorded.records[-1].with_shares(TO_GREEN, 8, "test")
    recorded.records.append(shifted.with_state("blue", ColourState.ASLEEP, 9, "test"))
    monkeypatch.setattr(ColourFolders, "check_sleep", AsyncMock())
    await recorded.operations.sleep("blue", "because", 1, print)


async def test_a_wake_that_fails_after_the_old_stream_was_put_aside_names_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asleep = Colour(0, ColourState.ASLEEP, (), "")
    record = Colours({"blue": Colour(10_000, ColourState.ACTIVE, (), ""), "green": asleep}, (), 1, "test")
    folder = tmp_path / "green"
    folder.mkdir()
    mesh = RunningMesh(
        pid=1, created=1, stream="s", kafka="", brokers=1, url="", trigger="auto", partitions=4
    )
    running.write(folder, mesh)

    async def fail(*arguments: Any) -> None:
        make_room = arguments[-1]
        make_room()
        raise Retryable("Kafka did not answer")

    monkeypatch.setattr(ColourOperations, "_act", fail)
    monkeypatch.setattr(ColourOperations, "_require_fit_pipes", AsyncMock())
    monkeypatch.setattr(ColourOperations, "colours", AsyncMock(return_value=record))
    folders = {"blue": tmp_path / "blue", "green": folder}
    under_test = ColourOperations("k", Topics("s"), ColourFolders(folders), "me")
    with pytest.raises(
        Retryable, match=f"Kafka did not answer; the old stream of green is in {folder}-4-part"
    ):
        await under_test.wake("green", "because", 60, SetupChange(partitions=8))
    assert (tmp_path / "green-4-partitions").is_dir()


async def test_a_colour_that_woke_without_the_other_one_awaits_its_write_keys(
    colours: ColoursUnderTest,
) -> None:
    await colours.judge(blue=Condition.STABLE, green=Condition.STABLE)
    await colours.write(green=ColourState.ASLEEP)
    await colours.operations().wake("green", "because", 60)
    assert (await colours.operations().colours()).colours["green"].awaits_keys, "blue has no Kafka"
    with pytest.raises(Retryable, match="green has not got the issued write keys of blue"):
        await colours.operations().shift(TO_GREEN, "because")
    await colours.operations().shift(TO_GREEN, "blue is lost", kind=ActionKind.RECOVER)
    assert (await colours.operations().colours()).shares == TO_GREEN


async def test_an_actor_that_was_frozen_in_an_action_changes_nothing_after_another_one(
    colours: ColoursUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    half, write = {"blue": 5000, "green": 5000}, ColourLog.write

    async def write_late(log: ColourLog, change: Callable[[Colours | None], Awaitable[Colours]]) -> None:
        """Be frozen just before, while another actor takes an action."""
        monkeypatch.setattr(ColourLog, "write", write)
        monkeypatch.setattr(operations, "_ACTION_S", 60)
        await colours.operations(actor="other").shift(half, "because", kind=ActionKind.RECOVER)
        await write(log, change)

    monkeypatch.setattr(operations, "_ACTION_S", 0)
    monkeypatch.setattr(ColourLog, "write", write_late)
    with pytest.raises(ActionRefused, match="another action was taken"):
        await colours.operations().shift(TO_GREEN, "because", kind=ActionKind.RECOVER)
    colours_after = await colours.operations().colours()
    assert (colours_after.shares, colours_after.by) == (half, "other")


async def test_a_record_that_is_written_beside_a_change_is_its_basis(
    colours: ColoursUnderTest,
) -> None:
    log = ColourLog(colours.kafka, ControlTopics(f"{colours.stream}-control"), "test")
    await log.start()
    seen: list[str] = []

    async def change(newest: Colours | None) -> Colours:
        assert newest is not None
        seen.append(newest.by)
        if len(seen) == 1:
            await colours.operations(actor="person").shift(TO_GREEN, "because", kind=ActionKind.RECOVER)
        return replace(newest, by="start")

    await log.write(change)
    await log.stop()
    assert seen == ["test", "person"]
    colours_after = await colours.operations().colours()
    assert (colours_after.shares, colours_after.by) == (TO_GREEN, "start")


async def test_what_waits_in_a_colour_whose_kafka_is_away_is_not_taken_for_nothing(
    colours: ColoursUnderTest,
) -> None:
    await colours.judge(blue=Condition.STABLE, green=Condition.STABLE)
    with pytest.raises(Retryable, match="hifi colour wake blue"):
        await colours.operations().drain("blue", "because", 60, print)
    assert await colours.states() == {"blue": ColourState.DRAINING, "green": ColourState.ACTIVE}


@pytest.mark.more
async def test_without_the_control_planes_kafka_nothing_changes(colours: ColoursUnderTest) -> None:
    cut_off_operations = colours.operations(kafka=f"127.0.0.1:{free_port()}")
    with pytest.raises(Misconfigured, match="the front keeps its shares"):
        await cut_off_operations.shift(TO_GREEN, "because", kind=ActionKind.RECOVER)
    assert (await colours.operations().colours()).by == "test"


def enriched_backlog(lake: range, **waiting: int) -> ConsumerBacklog:
    """A backlog with offsets of one partition of `enriched` that lake has not committed."""
    backlog = ConsumerBacklog(dict.fromkeys(SERVICES, 0) | waiting)
    backlog.ranges["lake"] = {TopicPartition("s.enriched", 0): lake}
    return backlog


def test_lake_has_to_get_to_the_last_event_and_not_to_the_heartbeats_after_it() -> None:
    ends: dict[TopicPartition, int] = {}
    assert _remaining(enriched_backlog(range(10), enrich=2), ends) == {"enrich": 2, "lake": 10}
    assert _remaining(enriched_backlog(range(12)), ends) == {"lake": 12}
    assert _remaining(enriched_backlog(range(20), normalize=1), ends) == {"normalize": 1, "lake": 12}
    assert _remaining(enriched_backlog(range(5, 30)), ends) == {"lake": 7}
    assert _remaining(enriched_backlog(range(12, 40), egest=3), ends) == {"egest": 3}
    assert _remaining(enriched_backlog(range(12, 41)), ends) == {}


def test_a_drain_waits_for_lake_and_state_only_where_a_pipe_has_a_table_or_a_step_that_runs() -> None:
    orders = pipe_of("orders", {"name": "d", "url": "http://127.0.0.1:1/"})
    daily = pipe_of("daily", {"name": "d", "url": "http://127.0.0.1:1/"}, **STEP_SOURCE)
    stored = pipe_of("stored", TABLE)

    def readers(*revisions: PipeRevision) -> list[str]:
        pipes = {revision.pipe.pipe: revision for revision in revisions}
        return _readers_of_enriched(RegistrySnapshot(1, pipes, 0, {}))

    assert readers(PipeRevision(orders, 1, 1)) == []
    assert readers(PipeRevision(stored, 1, 1), PipeRevision(daily, 2, 1)) == ["lake", "state.daily"]
    assert readers(PipeRevision(daily, 2, 1, paused=True)) == []


async def test_a_drain_waits_until_the_front_gives_the_colour_nothing_and_lake_has_its_events(
    colours: ColoursUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, front = Topics(colours.stream, ()), FrontAddress("http://front", "/run/haproxy.sock")
    await prepare(colours.kafka, topics, 1)
    await publish(colours.kafka, topics, [pipe_record(pipe_of("orders", TABLE), 1)])
    for folder in colours.folders.values():
        mesh = running.read(folder)
        assert mesh is not None
        running.write(folder, mesh.model_copy(update={"kafka": colours.kafka}))
    await colours.write_record(replace(await colours.operations().colours(), fronts=(front,)))
    await colours.judge(blue=Condition.STABLE, green=Condition.STABLE)
    async with AIOKafkaProducer(bootstrap_servers=colours.kafka) as producer:
        await producer.send_and_wait(topics.enriched, b"event", partition=0)

    async def commit(service: str) -> None:
        group = topics.group(service)
        async with AIOKafkaConsumer(bootstrap_servers=colours.kafka, group_id=group) as consumer:
            partition = TopicPartition(topics.enriched, 0)
            consumer.assign([partition])
            await consumer.commit({partition: OffsetAndMetadata(1, "")})

    await commit("egest")
    shares, asked = {"blue": 10_000, "green": 0}, list[FrontAddress]()

    async def given(_: ColourFolders, front: FrontAddress) -> Mapping[str, int]:
        asked.append(front)
        return dict(shares)

    monkeypatch.setattr(ColourFolders, "shares", given)
    monkeypatch.setattr(operations, "_SETTLE_S", 0)
    texts: list[str] = []
    drain = asyncio.create_task(colours.operations().drain("blue", "because", WITHIN_S, texts.append))
    await until(lambda: len(asked) > 2)
    assert (asked[0], texts, drain.done()) == (front, [], False)
    shares.update(TO_GREEN)
    await until(lambda: texts or drain.done())
    assert (texts, drain.done()) == (["records that wait: lake 1"], False)
    await commit("lake")
    await asyncio.wait_for(drain, WITHIN_S)
