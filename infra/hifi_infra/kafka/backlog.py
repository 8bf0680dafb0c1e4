"""The consumer backlog of each service: records waiting, due, and processed but not committed yet.

Services commit within a second of processing, except enrich: Spark commits at the end of a batch, which takes 30 s with
the real-time trigger. The difference between committed and end offsets of `normalized` would count those records as
waiting, so the progress inside a running batch is taken from the output: the newest record of a partition of `enriched`
carries the offset of its event in `raw` (field `hifi_raw`), and records keep their order within a partition. The
position of that event in `normalized` is found by binary search between the committed and the end offset.

A delivery in a retry tier is due once its append time plus the tier's delay has passed. Before that no number of
retriers could process it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from hifi.kafka.clients import admin_client, assigned_consumer
from hifi.kafka.topics import Topics
from hifi.record.fields import fields, number
from hifi.record.headers import RAW, REPLAY
from hifi.record.heartbeat import is_heartbeat
from hifi.runtime.errors import NotAnEvent, Retryable

ANSWER_S: Final = 10.0
_CLIENT_ID: Final = "hifi-backlog"
NEWEST: Final = 50
"""Records of `enriched` read back from the end of a partition to find one that is not a replayed dead letter."""
PROBE_BYTES: Final = 16 * 1024
"""Fetch size of a probe of `normalized`; Kafka sends at least one batch."""
SERVICES: Final = ("normalize", "enrich", "egest", "retrier")
SCALED: Final = ("normalize", "egest", "retrier")
"""Services whose number of instances follows their backlog."""
LAKE: Final = "lake"
STEP: Final = "state."
"""Before the name of a pipe: the service state, as it reads for the pipe's step."""


@dataclass(slots=True)
class ConsumerBacklog:
    """Records that the services of a stream have not processed, by service."""

    waiting: dict[str, int] = field(default_factory=dict)
    """Records not processed yet."""
    due: dict[str, int] = field(default_factory=dict)
    """Those of them that can be processed now: without deliveries that wait in a retry tier for their time."""
    uncommitted: dict[str, int] = field(default_factory=dict)
    """Records processed in a batch that is still running, so not committed; enrich only, absent when there are none."""
    ranges: dict[str, Mapping[TopicPartition, range]] = field(default_factory=dict)
    """Offsets from the committed one to the end, by partition."""


def reads(topics: Topics, service: str) -> dict[str, float]:
    """Return the topics that a service reads, each with the delay in seconds after which its records are due."""
    if service == LAKE or service.startswith(STEP):
        return {topics.enriched: 0}
    inputs: dict[str, dict[str, float]] = {
        "normalize": {topics.raw: 0},
        "enrich": {topics.normalized: 0},
        "egest": {topics.enriched: 0, topics.retry_out: 0},
        "retrier": {topics.retry_in(tier): tier.delay_s for tier in topics.tiers},
    }
    return inputs[service]


async def due_backlog(bootstrap: str, topics: Topics) -> dict[str, int]:
    """Read how many records the services in `SCALED` could process now.

    Raises:
        Retryable: Kafka does not answer within 10 s.
    """
    return (await read_backlog(bootstrap, topics, SCALED)).due


async def read_backlog(bootstrap: str, topics: Topics, services: Sequence[str] = SERVICES) -> ConsumerBacklog:
    """Read the backlog of services from Kafka, also in retry tiers that were removed from `HIFI_TIERS`.

    Args:
        bootstrap: `HOST:PORT,…`.
        topics: the stream's.
        services: to look at; beside `SERVICES`, `LAKE` and `STEP` with the name of a pipe.

    Raises:
        Retryable: Kafka does not answer within 10 s.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            return await _read_backlog(bootstrap, topics, services)
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retryable(f"cannot read the consumer offsets from Kafka at {bootstrap}: {error!r}") from error


async def _read_backlog(bootstrap: str, topics: Topics, services: Sequence[str]) -> ConsumerBacklog:
    admin = admin_client(bootstrap, _CLIENT_ID)
    consumer = assigned_consumer(bootstrap, _CLIENT_ID, max_partition_fetch_bytes=PROBE_BYTES)
    backlog = ConsumerBacklog()
    try:
        await admin.start()
        await consumer.start()
        topics = topics.with_removed_tiers(await admin.list_topics())
        for service in services:
            delays_s = reads(topics, service)
            uncommitted_ranges = await _uncommitted_ranges(
                admin,
                consumer,
                topics.group(service),
                list(delays_s),
                begins_at_end=service.startswith(STEP),
            )
            backlog.ranges[service] = uncommitted_ranges
            waiting_count = sum(len(offsets) for offsets in uncommitted_ranges.values())
            if service == "enrich" and waiting_count:
                processed_count = await _processed_by_enrich(consumer, topics, uncommitted_ranges)
                if processed_count:
                    waiting_count -= processed_count
                    backlog.uncommitted[service] = processed_count
            backlog.waiting[service] = waiting_count
            backlog.due[service] = waiting_count - await _not_due(consumer, uncommitted_ranges, delays_s)
        return backlog
    finally:
        await consumer.stop()
        await admin.close()


async def _not_due(
    consumer: Any, uncommitted_ranges: Mapping[TopicPartition, range], delays_s: Mapping[str, float]
) -> int:
    """Count the uncommitted records that are younger than the delay of their topic."""
    now_ms = time.time() * 1000
    due_before_ms = {
        tp: int(now_ms - delays_s[tp.topic] * 1000)
        for tp, offsets in uncommitted_ranges.items()
        if offsets and delays_s[tp.topic]
    }
    if not due_before_ms:
        return 0
    young_count = 0
    for tp, first in (await consumer.offsets_for_times(due_before_ms)).items():
        if first is not None:  # None: every record is older
            young_count += len(
                range(max(first.offset, uncommitted_ranges[tp].start), uncommitted_ranges[tp].stop)
            )
    return young_count


async def _uncommitted_ranges(
    admin: Any, consumer: Any, group: str, topics: Sequence[str], *, begins_at_end: bool
) -> dict[TopicPartition, range]:
    """Return the offsets of each partition from the committed one to the end.

    Without a committed offset they begin at the start; `begins_at_end`: none are, as a new step reads no older events.
    """
    partitions = [
        TopicPartition(topic["topic"], partition["partition"])
        for topic in await admin.describe_topics(list(topics))
        for partition in topic["partitions"]
    ]
    end_offsets = await consumer.end_offsets(partitions)
    start_offsets = await consumer.beginning_offsets(partitions)
    committed_offsets = await _committed(admin, group)
    first_offsets = {tp: offset.offset for tp, offset in committed_offsets.items()}
    return {
        tp: range(max(start_offsets[tp], first_offsets.get(tp, end if begins_at_end else 0)), end)
        for tp, end in end_offsets.items()
    }


async def _committed(admin: Any, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    try:
        return dict(await admin.list_consumer_group_offsets(group))
    except GroupCoordinatorNotAvailableError:  # no consumer has joined any group of this cluster yet
        return {}


async def _processed_by_enrich(
    consumer: Any, topics: Topics, uncommitted_ranges: Mapping[TopicPartition, range]
) -> int:
    """Count the uncommitted records of `normalized` up to the newest one whose result is on `enriched`."""
    open_ranges = {tp: offsets for tp, offsets in uncommitted_ranges.items() if offsets}
    output_partitions = [TopicPartition(topics.enriched, tp.partition) for tp in open_ranges]
    newest_offsets = await _newest_raw_offsets(consumer, output_partitions)
    searches = {
        tp: _Search(offsets, newest_offsets[tp.partition])
        for tp, offsets in open_ranges.items()
        if tp.partition in newest_offsets
    }
    consumer.assign(list(searches))
    while open_partitions := [tp for tp, search in searches.items() if search.first < search.last]:
        for tp in open_partitions:
            consumer.seek(tp, searches[tp].middle)
        for tp in open_partitions:
            searches[tp].narrow(await consumer.getone(tp))
    return sum(search.first - open_ranges[tp].start for tp, search in searches.items())


async def _newest_raw_offsets(consumer: Any, partitions: Sequence[TopicPartition]) -> dict[int, int]:
    """Return the highest `hifi_raw` among the newest records of each partition, without replayed dead letters.

    That of a heartbeat is the offset in `raw` up to which normalize had written everything, -1 for nothing.
    """
    start_offsets, end_offsets = (
        await consumer.beginning_offsets(partitions),
        await consumer.end_offsets(partitions),
    )
    unread_partitions = [tp for tp in partitions if end_offsets[tp] > start_offsets[tp]]
    consumer.assign(unread_partitions)
    for tp in unread_partitions:
        consumer.seek(tp, max(start_offsets[tp], end_offsets[tp] - NEWEST))
    newest_offsets: dict[int, int] = {}
    while unread_partitions:
        for tp, records in (await consumer.getmany(*unread_partitions, timeout_ms=500)).items():
            offsets = [offset for record in records if (offset := _raw_offset(record)) is not None]
            if offsets:
                newest_offsets[tp.partition] = max([*offsets, newest_offsets.get(tp.partition, -1)])
        unread_partitions = [tp for tp in unread_partitions if await consumer.position(tp) < end_offsets[tp]]
    return newest_offsets


class _Search:
    """Binary search for the first offset of `normalized` whose event comes after `raw` in the topic `raw`."""

    def __init__(self, offsets: range, raw_offset: int) -> None:
        self.first, self.last = offsets.start, offsets.stop
        self._raw = raw_offset

    @property
    def middle(self) -> int:
        """The offset to read next."""
        return (self.first + self.last) // 2

    def narrow(self, record: ConsumerRecord) -> None:
        """Continue in one half. A replayed dead letter is out of order and counts as processed."""
        raw_offset = _raw_offset(record)
        if raw_offset is None or raw_offset <= self._raw:
            self.first = min(record.offset + 1, self.last)
        else:
            self.last = self.middle


def _raw_offset(record: ConsumerRecord) -> int | None:
    values = fields(record.headers)
    try:
        return None if REPLAY in values else number(values, RAW, -1 if is_heartbeat(record.headers) else None)
    except NotAnEvent:
        return None
