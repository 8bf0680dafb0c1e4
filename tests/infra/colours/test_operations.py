"""Steps of a person on the colours: recorded in a real Kafka, and refused when they must wait."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from tests.support.colours.coloured_kafka import ColoursUnderTest

from hifi.control.action import ActionKind, ActionState
from hifi.control.steps import StepRefused
from hifi.control.verdict import Condition
from hifi.delivery.colours import ColourSetup, ColourState
from hifi.kafka.topic_follower import Take
from hifi.kafka.topics import Topics
from hifi.kafka.visit import read_topics
from hifi.pipe.issued_key import IssuedKeys, issued_key
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish
from hifi.pipe.revision import pipe_record
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.colours import operations
from hifi_infra.colours.new_setup import SetupChange
from hifi_infra.colours.runtime import ColourFolders
from hifi_infra.kafka.stream_setup import prepare, put_in_force
from hifi_infra.mesh import running
from hifi_infra.ports import free_port

TO_GREEN = {"blue": 0, "green": 10_000}


async def test_a_shift_is_recorded_as_a_step_and_changes_the_shares(colours: ColoursUnderTest) -> None:
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
        with pytest.raises(StepRefused, match=message):
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
    with pytest.raises(Retryable, match="a rollout of orders runs: end it first"):
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


async def test_a_colour_gets_another_setup_only_when_it_wakes_and_the_step_says_which(
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

    async def read(bootstrap: str, _: str, takes: Mapping[str, Take]) -> None:
        if topic not in takes:
            await read_topics(bootstrap, "test", takes)
            return
        for offset, record in enumerate(topics[bootstrap]):
            takes[topic](record.key, record.value, offset)

    async def write(bootstrap: str, _: str, *topic_records: tuple[str, Sequence[Record]]) -> None:
        [(written_topic, records)] = topic_records
        assert (bootstrap, written_topic) == ("green:1", topic)
        topics[bootstrap] += records

    async def kafka(_: ColourFolders, name: str) -> str:
        return f"{name}:1"

    monkeypatch.setattr(operations, "read_topics", read)
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
