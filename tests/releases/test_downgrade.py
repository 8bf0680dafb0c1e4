"""A release refuses a stream whose records a later one writes in another format, and changes nothing of it."""

import asyncio
import uuid

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from typer.testing import CliRunner

from hifi.kafka.admin import create_topics, topic_names
from hifi.kafka.topics import Topics, principal_topics
from hifi.pipe.registry import STREAM_KEY, PipeRegistry, publish, read_registry, stream_record
from hifi.record.identity import FORMAT
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_cli.app import command_line
from hifi_infra.kafka.stream_setup import prepare

REFUSED = rf"records of format {FORMAT + 1}, and this release of hifi.*nothing was changed. Run the release that wrote"


async def later_stream(kafka: str) -> Topics:
    """A stream of a later release, which has the topics that this one knows but for one."""
    topics = Topics(f"t{uuid.uuid4().hex[:8]}")
    await create_topics(kafka, topics, partitions=2, replication=1)
    value = orjson.loads(stream_record(2).value or b"") | {"format": FORMAT + 1}
    await publish(kafka, topics, [Record(STREAM_KEY, orjson.dumps(value), [])])
    return topics


async def end(kafka: str, topic: str) -> int:
    async with AIOKafkaConsumer(bootstrap_servers=kafka) as consumer:
        offsets = await consumer.end_offsets([TopicPartition(topic, 0)])
    return int(next(iter(offsets.values())))


async def test_services_setup_and_commands_refuse_records_of_a_later_format(kafka: str) -> None:
    topics = await later_stream(kafka)
    topics_before = (await topic_names(kafka, topics.stream), await end(kafka, topics.pipes))
    with pytest.raises(Misconfigured, match=REFUSED):
        await prepare(kafka, topics, 2, principal_topics(topics.stream))
    for command in (["upgrade", "check"], ["pipes"], ["apply", "examples/hello"]):
        arguments = [*command, "--kafka", kafka, "--stream", topics.stream]
        result = await asyncio.to_thread(CliRunner().invoke, command_line(), arguments)
        assert result.exit_code not in (0, 3), command
        assert f"records of format {FORMAT + 1}" in " ".join(result.output.split()), result.output
    assert (await topic_names(kafka, topics.stream), await end(kafka, topics.pipes)) == topics_before

    health = Health("test", "test-1")
    registry = PipeRegistry(kafka, topics, health)
    start = asyncio.create_task(registry.start())
    try:
        async with asyncio.timeout(20):
            while "records of format" not in health.waiting.get("pipes", ""):
                await asyncio.sleep(0.02)
        assert not start.done(), "a service reads no event before its pipes are loaded"
    finally:
        start.cancel()
        await asyncio.wait([start])
        await registry.stop()


async def test_a_stream_of_the_first_candidate_which_tells_no_format_is_read(kafka: str) -> None:
    topics = Topics(f"t{uuid.uuid4().hex[:8]}")
    await create_topics(kafka, topics, partitions=2, replication=1)
    await publish(kafka, topics, [Record(STREAM_KEY, b'{"partitions":2}', [])])
    assert (await read_registry(kafka, topics)).partitions == 2
