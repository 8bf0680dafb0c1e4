"""`hifi upgrade check` on a real Kafka: it names what differs, changes nothing, and is satisfied after setup."""

import asyncio
import json
import uuid
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from typer.testing import CliRunner

from hifi.kafka.admin import topic_names
from hifi.kafka.security.access import Acl
from hifi.kafka.topics import Topics, principal_topics
from hifi.pipe.registry import publish
from hifi.record.record import Record
from hifi_cli.app import command_line
from hifi_cli.commands import upgrade
from hifi_infra.kafka.stream_setup import prepare


def checked(kafka: str, stream: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
    result = CliRunner().invoke(
        command_line(), ["upgrade", "check", "--kafka", kafka, "--stream", stream, "--json", *options]
    )
    assert result.exit_code in (0, 3), result.output
    return result.exit_code, json.loads(result.stdout)


async def changed(kafka: str, stream: str) -> None:
    """Leave one topic out, and keep another one for a minute only."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.delete_topics([f"{stream}.parked"])
        declared = {topic.name: topic.configs() for topic in Topics(stream).all()}
        configs = declared[f"{stream}.raw"] | {"retention.ms": "60000"}  # it sets all settings of the topic
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, f"{stream}.raw", configs)])
        while f"{stream}.parked" in await admin.list_topics():
            await asyncio.sleep(0.05)
    finally:
        await admin.close()


def test_a_missing_topic_and_a_setting_that_differs_are_named_with_services_and_remedy(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HIFI_KAFKA", "HIFI_STREAM"):
        monkeypatch.delenv(name, raising=False)
    stream = f"s{uuid.uuid4().hex[:8]}"
    topics = Topics(stream)
    asyncio.run(prepare(kafka, topics, 2, principal_topics(stream)))
    assert checked(kafka, stream) == (0, [])

    asyncio.run(changed(kafka, stream))
    topics_before = asyncio.run(topic_names(kafka, stream))
    code, rows = checked(kafka, stream)
    assert code == 3
    [missing_topic] = [row for row in rows if row["kind"] == "topic"]
    assert (missing_topic["name"], missing_topic["wanted"], missing_topic["made_by"]) == (
        topics.parked,
        "2 partitions",
        "setup",
    )
    assert missing_topic["services"] == ["egest", "retrier"]
    [retention] = [row for row in rows if row["now"] == "retention.ms=60000"]
    assert (retention["name"], retention["made_by"]) == (topics.raw, "you")
    assert f"--entity-name {topics.raw} --add-config retention.ms=604800000" in retention["what_to_do"]
    assert len(rows) == 2
    assert asyncio.run(topic_names(kafka, stream)) == topics_before, "nothing was created"
    result = CliRunner().invoke(command_line(), ["upgrade", "check", "--kafka", kafka, "--stream", stream])
    assert result.exit_code == 3
    assert "retrier" in result.output

    asyncio.run(prepare(kafka, topics, 2, principal_topics(stream)))
    _, rows = checked(kafka, stream)
    assert {row["name"] for row in rows} == {topics.raw}

    later = Record(b"orders", b'{"revision": 1, "pipe": {"pipe": "orders", "later": 1}}', [])
    asyncio.run(publish(kafka, topics, [later]))
    _, rows = checked(kafka, stream)
    [held] = [row for row in rows if row["kind"] == "pipe"]
    assert held["name"] == "orders"
    assert held["now"].startswith("held: the record at offset")

    monkeypatch.setenv("HIFI_GONE_S", "1")
    acl = Acl("topic", topics.parked, False, "DescribeConfigs")
    monkeypatch.setattr(upgrade, "missing_acls", _returning([(f"User:{stream}.retrier", acl)]))
    _, rows = checked(kafka, stream)
    assert {(row["kind"], row["name"], row["made_by"]) for row in rows} >= {
        ("setting", "HIFI_GONE_S", "you"),
        ("ACL", f"User:{stream}.retrier", "hifi acl apply"),
    }


def _returning(value: Any) -> Any:
    async def missing(*_: Any) -> Any:
        return value

    return missing
