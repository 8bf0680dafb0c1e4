"""Stamps and heartbeats of normalize as a process on a real Kafka, with kills and rebalances."""

import asyncio
import itertools
import random
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import ConsumerRecord
from tests.support.normalize.normalize_harness import Normalize, Stream, headers, new_stream, normalize, pipe
from tests.support.stream_process import PARTITIONS

from hifi.pipe.model import Pipe
from hifi.record.cloudevents.timestamps import format_us, parse_us
from hifi.record.headers import TIME
from hifi.record.heartbeat import is_heartbeat
from hifi.record.hop import hop
from hifi.record.record import Record

pytestmark = pytest.mark.timeout(300)
START_MS = 1_785_600_000_000
HOUR_MS = 3_600_000
"""Times of events lie that far apart, so that the seconds by which heartbeats raise a watermark do not matter."""


class Read(NamedTuple):
    """A record of `normalized`."""

    pipe: str
    raw: int
    stamp_ms: int | None
    heartbeat: bool


def step(name: str, source: str) -> Pipe:
    """A pipe with the results of a step."""
    return Pipe.model_validate(
        {
            "pipe": name,
            "source": {
                "kind": "step",
                "from": source,
                "key": {"k": "string"},
                "window": {"tumbling": "1m"},
                "lateness": "30s",
                "fields": {"n": "count(*)"},
            },
            "destinations": [{"name": "d", "url": "http://127.0.0.1:9/"}],
        }
    )


def at(stream: Stream, name: str, hour: int) -> Record:
    """An event whose time is that many hours after `START_MS`, 4000 hours before it is accepted."""
    record = stream.event(name, {"n": stream.sequence})
    return Record(
        record.key, record.value, [*record.headers, (TIME, format_us((START_MS + hour * HOUR_MS) * 1000))]
    )


def time_ms(record: Record) -> int:
    """The time of an event of `at`, milliseconds since 1970 UTC."""
    return parse_us(dict(record.headers)[TIME]) // 1000


def read(record: ConsumerRecord) -> Read:
    header_fields, event_hop = headers(record), hop(record.headers)
    return Read(
        header_fields["hifi_pipe"].decode(),
        event_hop.raw,
        event_hop.stamp_ms,
        is_heartbeat(record.headers),
    )


async def normalized(stream: Stream) -> dict[int, list[Read]]:
    """Partition to the records of `normalized`."""
    records: dict[int, list[Read]] = {partition: [] for partition in range(PARTITIONS)}
    for record in await stream.all(stream.topics.normalized):
        records[record.partition].append(read(record))
    return records


async def until_beat(stream: Stream, name: str, stamped: bool, after: int = 0) -> dict[int, list[Read]]:
    """Wait until each partition has more than `after` heartbeats of a pipe that are all stamped, or are not."""
    async with asyncio.timeout(90):
        while True:
            records = await normalized(stream)
            beats = {
                partition: [entry for entry in reads if entry.heartbeat and entry.pipe == name]
                for partition, reads in records.items()
            }
            if all(
                len([beat for beat in partition_beats if (beat.stamp_ms is not None) == stamped]) > after
                for partition_beats in beats.values()
            ):
                return records
            await asyncio.sleep(0.2)


def check(sent: dict[int, list[Record]], records: dict[int, list[Read]], first: dict[int, int]) -> int:
    """Check the stamps of the pipe `p` against what plain Python makes of `raw`; returns the number of copies.

    Args:
        sent: partition to all records of `raw`.
        records: of `normalized`.
        first: partition to the first offset that is stamped.
    """
    copies = 0
    for partition, raw_records in sent.items():
        stamps: defaultdict[int, list[int | None]] = defaultdict(list)
        for entry in records[partition]:
            if not entry.heartbeat:
                stamps[entry.raw].append(entry.stamp_ms)
        assert sorted(stamps) == list(range(len(raw_records)))
        highest_ms: int | None = None
        for offset, record in enumerate(raw_records):
            copies += len(stamps[offset]) - 1
            [stamp_ms] = set(stamps[offset])
            if headers(record)["hifi_pipe"] != b"p" or offset < first[partition] or highest_ms is None:
                assert stamp_ms is None, offset
            else:
                assert stamp_ms is not None, offset
                assert 0 <= stamp_ms - highest_ms < HOUR_MS, offset
            if headers(record)["hifi_pipe"] == b"p" and offset >= first[partition]:
                highest_ms = max(highest_ms or 0, time_ms(record))
    return copies


async def test_an_idle_pipe_beats_and_a_pipe_that_no_step_reads_has_neither_stamps_nor_heartbeats(
    kafka: str, log: Path
) -> None:
    async with new_stream(kafka, pipe("p"), pipe("other")) as stream, normalize(stream, log) as instance:
        await stream.put(0, at(stream, "p", 1))
        await stream.read(stream.topics.normalized, 1)
        await stream.publish(step("results", "p"))
        await until_beat(stream, "p", stamped=False)
        sent = {partition: [at(stream, "p", 5), at(stream, "other", 9)] for partition in range(1, PARTITIONS)}
        sent[0] = [at(stream, "p", 5), at(stream, "p", 3)]
        for partition, records in sent.items():
            await stream.put(partition, *records)
        records_by_partition = await until_beat(stream, "p", stamped=True, after=1)
        for partition, reads in records_by_partition.items():
            beats = [entry for entry in reads if entry.heartbeat]
            assert {beat.pipe for beat in beats} == {"p"}
            stamps = [beat.stamp_ms for beat in beats if beat.stamp_ms is not None]
            assert stamps == sorted(stamps)
            assert 1000 <= stamps[0] - time_ms(sent[partition][0]) < HOUR_MS
            assert beats[-1].raw == 2 - (partition != 0)
        stamps_before = {
            partition: max(entry.stamp_ms or 0 for entry in reads)
            for partition, reads in records_by_partition.items()
        }
        for partition in range(PARTITIONS):
            await stream.put(partition, at(stream, "p", 4), at(stream, "other", 4))
        async with asyncio.timeout(60):
            while True:
                records_by_partition = await normalized(stream)
                events = {
                    partition: [entry for entry in reads if not entry.heartbeat]
                    for partition, reads in records_by_partition.items()
                }
                if all(
                    len(partition_events) == 4 + (partition == 0)
                    for partition, partition_events in events.items()
                ):
                    break
                await asyncio.sleep(0.2)
        for partition, partition_events in events.items():
            assert partition_events[-2].stamp_ms is not None
            assert partition_events[-2].stamp_ms >= stamps_before[partition], (
                "an event is stamped from the heartbeats before it"
            )
            assert [entry.stamp_ms for entry in partition_events if entry.pipe == "other"] == [None] * (
                1 + (partition != 0)
            )
        assert await instance.stop() == 0


async def test_a_record_that_is_written_again_after_a_kill_has_the_same_stamp(kafka: str, log: Path) -> None:
    chance = random.Random(1)
    sent: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    async with new_stream(kafka, pipe("p"), pipe("other"), step("results", "p")) as stream:
        async with normalize(stream, log) as instance:
            await until_beat(stream, "p", stamped=False)
            assert await instance.stop() == 0
        hours = itertools.count(10)
        copies = 0
        for _ in range(10):
            async with normalize(stream, log) as instance:
                count_before = sum(map(len, sent.values()))
                for partition, number in itertools.product(range(PARTITIONS), range(5)):
                    hour = next(hours)
                    batch = [
                        at(stream, chance.choice(("p", "p", "other")), max(1, hour - chance.randrange(4)))
                        for _ in range(20)
                    ]
                    sent[partition] += batch
                    await stream.put(partition, *batch)
                    if number == 4:
                        await stream.until(stream.topics.normalized, count_before + 1)
                instance.process.kill()
                await asyncio.to_thread(instance.process.wait)
            async with normalize(stream, log) as instance:
                await until_read(stream, sent)
                assert await instance.stop() == 0
            copies = check(sent, await normalized(stream), dict.fromkeys(sent, 0))
            if copies > 50:
                break
        assert copies > 50, "the kills did not make normalize write records again"


async def until_read(stream: Stream, sent: dict[int, list[Record]]) -> None:
    """Wait until each record is on `normalized`."""
    async with asyncio.timeout(90):
        while True:
            records = await normalized(stream)
            read_counts = {
                partition: len({entry.raw for entry in reads if not entry.heartbeat})
                for partition, reads in records.items()
            }
            if read_counts == {partition: len(raw_records) for partition, raw_records in sent.items()}:
                return
            await asyncio.sleep(0.2)


async def test_stamps_go_on_where_they_were_when_partitions_move(kafka: str, log: Path) -> None:
    sent: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    hours = itertools.count(10)

    async def put(stream: Stream) -> None:
        for partition in range(PARTITIONS):
            hour = next(hours)
            batch = [at(stream, "p", hour - age) for age in (2, 0, 3, 1)]
            sent[partition] += batch
            await stream.put(partition, *batch)

    async def put_until_ready(stream: Stream, instance: Normalize) -> None:
        while (await asyncio.to_thread(instance.readyz))[0] != 200:
            await put(stream)

    async with new_stream(kafka, pipe("p"), step("results", "p")) as stream, normalize(stream, log) as first:
        await until_beat(stream, "p", stamped=False)
        await put(stream)
        async with normalize(stream, log) as second:
            await put(stream)
            stopped = asyncio.create_task(first.stop())
            while not stopped.done():
                await put(stream)
            assert await stopped == 0
            await put_until_ready(stream, second)
            await put(stream)
            await until_read(stream, sent)
            check(sent, await normalized(stream), dict.fromkeys(sent, 0))
            await until_beat(stream, "p", stamped=True)
            assert await second.stop() == 0
