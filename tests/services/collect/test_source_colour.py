"""With two colours a source is read by one of them, and the other goes on where that one stopped."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.support.collect.collected_stream import CollectedStream, collected_stream, fields, ids_of, until
from tests.support.stream_process import readyz

from hifi.delivery.colours import Colour, Colours, ColourState
from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.kafka.topics import ControlTopics
from hifi_collect.topic.topic_reader import BATCH_RECORDS, WRITING_BATCHES

RECORDS = 300
BACKLOG = 75_000
MOST_REPEATED = (WRITING_BATCHES + 1) * BATCH_RECORDS
"""Of a partition: each batch commits what was written before it."""


async def write(stream: CollectedStream, control: ControlTopics, blue: int) -> None:
    """Give blue a share of the requests."""
    shares = {
        name: Colour(share, ColourState.ACTIVE if share else ColourState.IDLE, (), "")
        for name, share in (("blue", blue), ("green", 10_000 - blue))
    }
    producer = Producer(stream.kafka, "test")
    await producer.start()
    await producer.send_and_wait(control.colours, 0, [Colours(shares, (), 1, "test").record()])
    await producer.stop()


@pytest.mark.more
async def test_only_the_colour_with_the_larger_share_reads_and_the_other_one_goes_on_without_a_copy(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream:
        control = ControlTopics(f"{stream.topics.stream}-control")
        await create_topics(kafka, control, partitions=1, replication=1)
        await stream.publish(stream.pipe())
        await write(stream, control, 10_000)
        ports = {}
        for name in ("green", "blue"):
            _, ports[name] = await stream.start(
                "collect", colours=control.control, colour=name, instance=f"collect-{name}"
            )
        warning_text = "sources are not read here but by blue"
        await until(lambda: warning_text in str(readyz(ports["green"])[1]))
        await stream.put(range(RECORDS))
        await stream.read(stream.topics.raw, lambda records: len(ids_of(records)) == RECORDS)
        await write(stream, control, 0)
        await until(lambda: "here but by green" in str(readyz(ports["blue"])[1]))
        await stream.put(range(RECORDS, 2 * RECORDS))
        raw = await stream.read(stream.topics.raw, lambda records: len(ids_of(records)) == 2 * RECORDS)
        assert len(raw) == 2 * RECORDS
        log_text = await asyncio.to_thread(log.read_text)
        assert log_text.count('"source-begun"') == 2


@pytest.mark.more
async def test_the_other_colour_repeats_three_batches_of_a_partition_at_most_when_the_reading_one_is_killed(
    kafka: str, log: Path
) -> None:
    """The number is the same on any machine, for topics of Kafka and for the one partition of Debezium."""
    async with collected_stream(kafka, log) as stream:
        control = ControlTopics(f"{stream.topics.stream}-control")
        await create_topics(kafka, control, partitions=1, replication=1)
        await stream.put(range(BACKLOG))
        await write(stream, control, 10_000)
        processes = {}
        for name in ("green", "blue"):
            processes[name], _ = await stream.start(
                "collect", colours=control.control, colour=name, instance=f"collect-{name}"
            )
        await stream.publish(stream.pipe())
        await stream.read(stream.topics.raw, lambda records: len(records) > BACKLOG // 10)
        await stream.kill(processes["blue"])
        events_before_kill = len(ids_of(await stream.all(stream.topics.raw)))
        await write(stream, control, 0)
        raw = await stream.read(stream.topics.raw, lambda records: len(ids_of(records)) == BACKLOG)
        counts = Counter(fields(record)["ce_id"] for record in raw)
        repeat_counts = Counter(name.rsplit(b"/", 1)[0] for name, count in counts.items() if count > 1)
        print(
            f"{repeat_counts.total()} of {events_before_kill} events were read again: {sorted(repeat_counts.values())}"
        )
        assert max(counts.values()) <= 2
        assert all(count <= MOST_REPEATED for count in repeat_counts.values())
