"""On a real broker each user can do what its service needs and nothing else."""

import asyncio
import time

import pytest
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from tests.support.kafka.secured_kafka import CONTROL, SecuredKafka

from hifi.control.action import Action, ActionKind, ActionState
from hifi.control.action_right import ActionRight
from hifi.control.permission import GRANTED
from hifi.kafka.fenced_writer import FencedWriter
from hifi.kafka.security import client_options
from hifi.kafka.security.access import CHANGES, access
from hifi.kafka.security.client_options import _by_address
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import Topics
from hifi.record.record import Record
from hifi.runtime.errors import Retryable
from hifi_debezium.source.kept_keys import KeptKeys
from hifi_infra.kafka.credentials import ADMIN

NEEDS = access(Topics("s"))
TOPICS = sorted(topic.name for topic in Topics("s").all())
PRODUCER = {"acks": "all", "enable_idempotence": True, "request_timeout_ms": 10_000}
NOT_AUTHORIZED = 29


def _allowed(name: str, patterns: object) -> bool:
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        for pattern in patterns  # type: ignore[attr-defined]
    )


@pytest.mark.parametrize("role", NEEDS)
async def test_a_user_writes_its_own_topics_and_is_refused_on_all_others(
    secured: SecuredKafka, role: str
) -> None:
    written_topics = set()
    async with secured.client(AIOKafkaProducer, secured.security(role), **PRODUCER) as producer:
        for topic in TOPICS:
            try:
                await producer.send_and_wait(topic, b"{}", key=b"k", partition=0)
            except TopicAuthorizationFailedError:
                continue
            written_topics.add(topic)
    assert written_topics == {topic for topic in TOPICS if _allowed(topic, NEEDS[role].writes)}


@pytest.mark.parametrize("role", NEEDS)
async def test_a_user_reads_its_own_topics_and_is_refused_on_all_others(
    secured: SecuredKafka, role: str
) -> None:
    admin = secured.credentials.security(ADMIN)
    async with secured.client(AIOKafkaProducer, admin, **PRODUCER) as producer:
        for topic in TOPICS:
            await producer.send_and_wait(topic, b"{}", key=b"k", partition=0)
    security = secured.security(role)
    async with secured.client(AIOKafkaAdminClient, security) as client:
        visible = {
            description["topic"]
            for description in await client.describe_topics(TOPICS)
            if description["error_code"] != NOT_AUTHORIZED
        }
    read_topics = set()
    for topic in sorted(visible):  # fetching a topic that a user may not even describe never ends
        options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with secured.client(AIOKafkaConsumer, security, **options) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            try:
                async with asyncio.timeout(20):
                    await consumer.getone()
            except TopicAuthorizationFailedError:
                continue
            read_topics.add(topic)
    assert read_topics == {topic for topic in TOPICS if _allowed(topic, NEEDS[role].reads)}
    assert visible == {
        topic
        for topic in TOPICS
        if _allowed(
            topic,
            [
                *NEEDS[role].reads,
                *NEEDS[role].writes,
                *NEEDS[role].describes,
                *NEEDS[role].creates,
            ],
        )
    }


@pytest.mark.parametrize("role", [role for role in NEEDS if NEEDS[role].groups])
async def test_a_user_commits_to_its_own_groups_and_is_refused_on_all_others(
    secured: SecuredKafka, role: str
) -> None:
    groups = sorted({name for service_access in NEEDS.values() for name in service_access.groups})
    topic = next(name for name in TOPICS if _allowed(name, NEEDS[role].reads))
    committed_groups = set()
    for group in groups:
        name = group.replace("*", "-1")
        options = {"group_id": name, "enable_auto_commit": False}
        tp = TopicPartition(topic, 0)
        async with secured.client(AIOKafkaConsumer, secured.security(role), **options) as consumer:
            consumer.assign([tp])
            try:
                async with asyncio.timeout(20):
                    await consumer.commit({tp: 0})
            except GroupAuthorizationFailedError:
                continue
            committed_groups.add(group)
    assert committed_groups == set(NEEDS[role].groups)


async def test_the_user_who_reads_changes_keeps_the_keys_of_rows_beside_them_and_nowhere_else(
    secured: SecuredKafka,
) -> None:
    security = secured.security(CHANGES)
    keys = KeptKeys(secured.bootstrap, "s-connect.shop.keys", security, "shop")
    await keys.provide()
    await keys.write([(b'["public.flights",1]', b"{}")])
    await keys.close()
    with pytest.raises(Retryable, match=r"s\.shop\.keys with the keys of rows cannot be created"):
        await KeptKeys(secured.bootstrap, "s.shop.keys", security, "shop").provide()


async def test_only_the_publisher_creates_topics_and_only_of_its_stream(secured: SecuredKafka) -> None:
    created_topics = set()
    for role in NEEDS:
        async with secured.client(AIOKafkaAdminClient, secured.security(role)) as admin:
            for name in ("s.new", "other.new"):
                answer = await admin.create_topics([NewTopic(f"{name}-{role}", 1, 1)])
                if answer.topic_errors[0][1] == 0:
                    created_topics.add((role, name))
    assert created_topics == {("publisher", "s.new")}


async def test_a_user_sees_the_offsets_of_the_groups_that_it_may_describe_and_of_no_other(
    secured: SecuredKafka,
) -> None:
    group = secured.topics.group("normalize")
    tp = TopicPartition(secured.topics.raw, 0)
    options = {"group_id": group, "enable_auto_commit": False}
    async with secured.client(AIOKafkaConsumer, secured.security("normalize"), **options) as consumer:
        consumer.assign([tp])
        await consumer.commit({tp: 1})
    permitted_roles = set()
    for role in NEEDS:
        async with secured.client(AIOKafkaAdminClient, secured.security(role)) as admin:
            try:
                committed_offsets = await admin.list_consumer_group_offsets(group)
            except GroupAuthorizationFailedError:
                continue
            if committed_offsets[tp].offset == 1:
                permitted_roles.add(role)
    assert permitted_roles == {"ingest", "collect", "normalize", "observe", "operator", "view"}


def _act_as(role: str, secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> ActionRight:
    monkeypatch.setitem(_by_address, secured.bootstrap, secured.security(role))
    return ActionRight(secured.bootstrap, CONTROL.actions, CONTROL.actor, role)


async def test_an_actor_takes_an_action_and_other_services_may_not(
    secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale_out = Action("scale", ActionKind.SCALE_OUT, "service/egest", "1 to 2", "", 1, 2)
    scale = _act_as("scale", secured, monkeypatch)
    await scale.start()
    try:
        action = await scale.begin(scale_out, lambda _: GRANTED)
        await scale.end(action, ActionState.DONE, "2")
        observe = _act_as("observe", secured, monkeypatch)  # which may read them
        await observe.start()
        try:
            # Kafka acknowledges a transaction before readers of committed records see it.
            async with asyncio.timeout(60):
                while len(observe.log.history.newest_first) < 1:
                    await observe.log.catch_up()
            with pytest.raises(Retryable, match="Authoriz"):
                await observe.begin(scale_out, lambda _: GRANTED)
        finally:
            await observe.stop()
    finally:
        await scale.stop()


async def test_the_rollout_service_writes_pipes_and_statuses_and_another_actor_may_not(
    secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_results = {}
    for role in ("rollout", "scale"):
        monkeypatch.setitem(_by_address, secured.bootstrap, secured.security(role))
        for topic in (secured.topics.pipes, CONTROL.rollouts, CONTROL.declared, CONTROL.health):
            writer = FencedWriter(secured.bootstrap, f"{CONTROL.rollout_writer}.test", role)
            try:
                write_results[role, topic] = await writer.write(topic, [Record(b"k", b"{}", [])]) >= 0
            except Retryable:
                write_results[role, topic] = False
            finally:
                await writer.stop()
    monkeypatch.setitem(_by_address, secured.bootstrap, secured.security("rollout"))
    for topic in (CONTROL.declared, CONTROL.requests, CONTROL.rollouts, CONTROL.health):
        follower = TopicFollower(secured.bootstrap, "test", {topic: lambda *_: None})
        await follower.start()
        await follower.stop()
    assert {key for key, is_allowed in write_results.items() if is_allowed} == {
        ("rollout", secured.topics.pipes),
        ("rollout", CONTROL.rollouts),
    }


async def test_manage_changes_the_schema_registry_and_an_actor_may_not(
    secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_results = {}
    for role in ("manage", "rollout"):
        monkeypatch.setitem(_by_address, secured.bootstrap, secured.security(role))
        writer = FencedWriter(secured.bootstrap, CONTROL.registrar, role)
        try:
            write_results[role] = await writer.write(CONTROL.schemas, [Record(b"k", b"{}", [])]) >= 0
        except Retryable:
            write_results[role] = False
        finally:
            await writer.stop()
    assert write_results == {"manage": True, "rollout": False}


async def test_collect_keeps_the_progress_of_a_source_and_another_service_may_not(
    secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, read_values = secured.topics.source_progress, dict[bytes | None, bytes | None]()
    for role in ("collect", "normalize"):
        monkeypatch.setitem(_by_address, secured.bootstrap, secured.security(role))
        writer = FencedWriter(secured.bootstrap, secured.topics.source_writer("orders"), role)
        try:
            is_written = await writer.write(topic, [Record(role.encode(), b"{}", [])]) >= 0
        except Retryable:
            is_written = False
        finally:
            await writer.stop()
        assert is_written == (role == "collect")
    monkeypatch.setitem(_by_address, secured.bootstrap, secured.security("collect"))
    take_by_topic = {topic: lambda key, value, _: read_values.update({key: value})}
    follower = TopicFollower(secured.bootstrap, "collect", take_by_topic)
    await follower.start()
    await follower.stop()
    assert read_values.get(b"collect") == b"{}"


def test_a_client_stops_soon_though_the_broker_does_not_end_the_connection(secured: SecuredKafka) -> None:
    """On the loop of the services, which waits 30 s for that; it happened once in some ten stops."""

    async def stop_while_fetching() -> float:
        consumer = AIOKafkaConsumer(**client_options(secured.bootstrap, secured.security("observe")))
        await consumer.start()
        consumer.assign([partition := TopicPartition(secured.topics.receipts, 0)])
        await consumer.beginning_offsets([partition])
        await consumer.end_offsets([partition])
        began_s = time.monotonic()
        await consumer.stop()
        return time.monotonic() - began_s

    async def longest_s() -> float:
        return max([max(await asyncio.gather(*(stop_while_fetching() for _ in range(4)))) for _ in range(8)])

    assert uvloop.run(longest_s()) < 20
