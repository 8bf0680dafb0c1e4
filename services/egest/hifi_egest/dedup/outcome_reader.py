"""Read the outcomes that the last owner of a partition wrote beyond its commit.

Every record that ends a delivery names the record it is the outcome of (`hifi_source`). From the offsets in the
commit's metadata on there are few: those of the records in flight and of the last seconds before.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import assigned_consumer
from hifi.kafka.topic_reader import read_ranges
from hifi.kafka.topics import Topics
from hifi.record.fields import fields
from hifi.record.headers import DESTINATION, REASON, SEQ, SOURCE
from hifi.record.receipt import parse_source
from hifi.runtime import log
from hifi.runtime.clock import wait_at_most
from hifi.runtime.running import cancel
from hifi_egest.dedup.copy_key import work_key
from hifi_egest.dedup.outcome_index import OutcomeIndex
from hifi_egest.policy.outcome import DeadLettered, Parked, RetryLater, WrittenBefore

REFRESH_S: Final = 2.0
"""Time between two reads of the end offsets of the outcome topics, seconds: the next owner reads that much more."""
EXTRA_RECEIPTS: Final = 500
"""Receipts read before the start offset, to fill the window of copies with another offset in their log."""
SKEW_MS: Final = 30_000
"""Maximum difference between the clocks of two brokers, milliseconds. If it is exceeded, deliveries made before a
takeover may be repeated."""
_GATHER_S: Final = 0.02
_CONNECT_S: Final = 5.0

logger = log.get(__name__)


@dataclass(slots=True)
class RecordedOutcomes:
    """The outcomes of one source partition that were already written.

    Attributes:
        index: of records at or above the committed offset, by destination.
        keys: work keys of records below it, oldest first.
        without_receipt: (offset, destination) to a retry, parked delivery or dead letter without a receipt.
    """

    index: OutcomeIndex = field(default_factory=OutcomeIndex)
    keys: list[bytes] = field(default_factory=list)
    without_receipt: dict[tuple[int, bytes], WrittenBefore] = field(default_factory=dict)


@dataclass(slots=True)
class _ReadRequest:
    source: bytes
    partition: int
    committed: int
    since_ms: int
    floors: Mapping[str, int] | None
    outcomes: RecordedOutcomes
    answer: asyncio.Future[RecordedOutcomes]
    end: int = 0
    """End of the source partition at the takeover: an outcome from there on is of a topic that had its name before."""


class OutcomeReader:
    """Reads the outcome topics (receipts, retries, dead letters, parked): records at takeovers, ends periodically."""

    def __init__(self, bootstrap: str, client_id: str, topics: Topics) -> None:
        self._bootstrap, self._client_id = bootstrap, client_id
        self._receipts = topics.receipts
        self._source_topics = {b"enriched": topics.enriched, b"retry-out": topics.retry_out}
        self._outcome_of: dict[str, bytes] = {topics.retry_in(tier): RetryLater.name for tier in topics.tiers}
        self._outcome_of[topics.dead_letter] = DeadLettered.name
        self._outcome_of[topics.parked] = Parked.name
        self._topics = [self._receipts, *self._outcome_of]
        self._requests: list[_ReadRequest] = []
        self._requested = asyncio.Event()
        self._floors: dict[int, dict[str, int]] = {}
        self._consumer: Any = None
        self.task: asyncio.Task[None] | None = None
        """Reads in the background."""

    async def start(self) -> None:
        """Start reading in the background."""
        self.task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop reading."""
        await cancel(self.task)
        await self._close()

    def floors(self, partition: int) -> Mapping[str, int]:
        """Recent end offsets of the outcome topics, by topic; available from the first `read` of the partition on."""
        return self._floors[partition]

    async def read(
        self, source: str, partition: int, committed: int, since_ms: int, floors: Mapping[str, int] | None
    ) -> RecordedOutcomes:
        """Read the outcomes of a source partition.

        Args:
            source: `enriched` or `retry-out`.
            partition: number.
            committed: the first offset that is read again.
            since_ms: when the first record was appended, milliseconds since 1970 UTC: its outcomes are later. For a
                partition that was idle for days this is much closer than the floors.
            floors: topic to start offset; a topic that is missing is read from its beginning. None: read nothing.
        """
        answer: asyncio.Future[RecordedOutcomes] = asyncio.get_running_loop().create_future()
        request = _ReadRequest(
            source.encode(), partition, committed, since_ms, floors, RecordedOutcomes(), answer
        )
        self._requests.append(request)
        self._requested.set()
        return await request.answer

    async def _run(self) -> None:
        try:  # connect now, so that the first records need not wait
            async with asyncio.timeout(_CONNECT_S):
                await self._connect()
        except (KafkaError, OSError, TimeoutError):
            await self._close()
        while True:
            await wait_at_most(self._requested, REFRESH_S)
            self._requested.clear()
            if self._requests:
                await asyncio.sleep(_GATHER_S)  # a rebalance assigns many partitions at once
            requests, self._requests = self._requests, []
            try:
                await self._serve(requests)
            except Exception as error:  # noqa: BLE001 - without the outcomes no partition may start, whatever failed
                logger.warning("outcomes-read-failed", error=repr(error))
                self._requests += requests
                await self._close()
                await asyncio.sleep(0.5)
                if self._requests:
                    self._requested.set()

    async def _serve(self, requests: list[_ReadRequest]) -> None:
        partitions = {request.partition for request in requests} | set(self._floors)
        if not partitions:
            return
        await self._connect()
        topic_partitions = [
            TopicPartition(topic, partition) for topic in self._topics for partition in partitions
        ]
        sources = [
            TopicPartition(self._source_topics[request.source], request.partition) for request in requests
        ]
        end_offsets = await self._consumer.end_offsets([*topic_partitions, *sources])
        for request, source in zip(requests, sources, strict=True):
            request.outcomes, request.end = RecordedOutcomes(), end_offsets[source]
        await self._read_records(requests, end_offsets)
        for partition in partitions:
            self._floors[partition] = {
                topic: end_offsets[TopicPartition(topic, partition)] for topic in self._topics
            }
        for request in requests:
            if not request.answer.done():
                request.answer.set_result(request.outcomes)

    async def _connect(self) -> None:
        if self._consumer is not None:
            return
        self._consumer = assigned_consumer(
            self._bootstrap, self._client_id, auto_offset_reset="earliest", fetch_max_wait_ms=50
        )
        await self._consumer.start()
        # The result is not used: the call makes the client look up the leaders of all topics before they are needed.
        await self._consumer.end_offsets([TopicPartition(topic, 0) for topic in self._topics])

    async def _read_records(
        self, requests: list[_ReadRequest], end_offsets: Mapping[TopicPartition, int]
    ) -> None:
        start_offsets = await self._start_offsets(requests, end_offsets)
        ranges = {
            tp: range(start, end_offsets[tp])
            for tp, start in start_offsets.items()
            if start < end_offsets[tp]
        }
        if not ranges:
            return
        record_count = 0
        async for records in read_ranges(self._consumer, ranges):
            record_count += len(records)
            for record in records:
                try:
                    self._add_outcome(requests, record)
                except Exception:  # hifi did not write it
                    logger.exception(
                        "outcome-unreadable",
                        topic=record.topic,
                        partition=record.partition,
                        offset=record.offset,
                    )
        self._consumer.unsubscribe()
        logger.info("outcomes-read", records=record_count, partitions=len({tp.partition for tp in ranges}))

    async def _start_offsets(
        self, requests: list[_ReadRequest], end_offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Start offset of each topic's partition, never below its first offset, which could not be reached."""
        floors: dict[TopicPartition, int] = {}
        since_ms: dict[TopicPartition, int] = {}
        for request in requests:
            if request.floors is not None:
                for topic in self._topics:
                    tp, floor = TopicPartition(topic, request.partition), request.floors.get(topic, 0)
                    floors[tp] = min(floor, floors.get(tp, floor))
                    since_ms[tp] = min(request.since_ms - SKEW_MS, since_ms.get(tp, request.since_ms))
        if not floors:
            return {}
        beginning_offsets = await self._consumer.beginning_offsets(list(floors))
        offsets_by_time = await self._consumer.offsets_for_times(
            {tp: max(0, ms) for tp, ms in since_ms.items()}
        )
        start_offsets = {}
        for tp, floor in floors.items():
            position = offsets_by_time.get(tp)
            offset = max(floor, position.offset if position is not None else end_offsets[tp])
            extra_count = EXTRA_RECEIPTS if tp.topic == self._receipts else 0
            start_offsets[tp] = max(offset - extra_count, beginning_offsets[tp])
        return start_offsets

    def _add_outcome(self, requests: list[_ReadRequest], record: ConsumerRecord) -> None:
        record_fields = fields(record.headers)
        source_position = parse_source(record_fields.get(SOURCE, b""))
        if source_position is None or SEQ not in record_fields:
            return
        source, offset = source_position
        destination = record_fields.get(DESTINATION, b"")
        for request in requests:
            if request.partition != record.partition or request.source != source or request.floors is None:
                continue
            outcomes = request.outcomes
            if offset < request.committed:
                if record.topic == self._receipts:
                    outcomes.keys.append(work_key(source.decode(), record_fields))
            elif offset >= request.end or record.timestamp < request.since_ms - SKEW_MS:
                continue  # of a record that had this offset before the topic was made again
            elif record.topic == self._receipts:
                outcomes.index.add(offset, destination)
                outcomes.without_receipt.pop((offset, destination), None)
            elif not outcomes.index.has(offset, destination):
                outcomes.index.add(offset, destination)
                outcomes.without_receipt[offset, destination] = WrittenBefore(
                    self._outcome_of[record.topic], record_fields.get(REASON, b"").decode("utf-8", "replace")
                )

    async def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(5):
                    await consumer.stop()
