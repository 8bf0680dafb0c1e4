"""Restore the ledger of a partition number from the topic `minutes`."""

import asyncio
from collections.abc import Collection
from typing import Any, Final

import orjson
from aiokafka import ConsumerRecord, TopicPartition

from hifi.kafka.clients import topic_consumer
from hifi.kafka.late_answers import LateAnswers
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.kafka.topics import Topics
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi.runtime.trusted_clock import read_clocks
from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.merged_minute import read_pipe_minute
from hifi_observe.minutes.record_checks import RESTART
from hifi_observe.minutes.terms import TERM, is_older_share, is_overtaken, term_of

_DIFFERENT_S: Final = 10.0
_LATE_S: Final = 20.0
_AGAIN_S: Final = 0.5

logger = log.get(__name__)


async def load_ledger(
    settings: ServiceSettings,
    topics: Topics,
    partitions: int,
    rules: ClosingRules,
    partition: int,
    generation: int,
    known_term: int,
) -> PartitionLedger:
    """The ledger as its last owner published it; an empty one if nothing was published.

    Args:
        settings: address of Kafka and instance name.
        topics: of the stream.
        partitions: of the stream, and so of the topic `minutes`.
        rules: when minutes close.
        partition: partition number of the ledger.
        generation: of the group, in which it was assigned.
        known_term: highest term that this process has seen; the topic may have been emptied since.

    Raises:
        aiokafka.errors.KafkaError: Kafka did not answer.
    """
    published = PublishedLedger(topics.minutes, partition)
    async with topic_consumer(settings.kafka, settings.instance) as consumer:
        tps = [TopicPartition(topics.minutes, number) for number in range(partitions)]
        await _read_settled(consumer, tps, published)
    ledger = published.ledger(rules, generation, known_term)
    logger.info(
        "ledger-loaded",
        partition=partition,
        minutes=len(ledger.pipe_minutes),
        resumed=published.marker is not None,
        term=ledger.term,
    )
    return ledger


async def _read_settled(consumer: Any, tps: list[TopicPartition], published: "PublishedLedger") -> None:
    """Read all partitions until none of them can lack records, as the answer of a replaced broker makes it.

    Its owner writes each marker to all partitions, so one that is behind the others ends too early. An owner that was
    killed while it wrote one leaves them different for good, so the wait for that is bounded.
    """
    late_answers = LateAnswers()
    read_s: float | None = None  # when everything was read once, which may take long
    next_offsets: dict[TopicPartition, int] = {}
    while True:
        asked_us = read_clocks().monotonic_us
        ranges = await offset_ranges(consumer, tps)
        counts = late_answers.counts(asked_us, read_clocks().monotonic_us)
        unread = {
            tp: range(max(next_offsets.get(tp, 0), offsets.start), offsets.stop)
            for tp, offsets in ranges.items()
        }
        async for records in read_ranges(consumer, unread):
            for record in records:
                published.take(record)
        next_offsets |= {tp: offsets.stop for tp, offsets in unread.items() if offsets}
        read_s = monotonic_s() if read_s is None else read_s
        passed_s = monotonic_s() - read_s
        if (counts or passed_s >= _LATE_S) and (published.agrees(tps) or passed_s >= _DIFFERENT_S):
            return
        await asyncio.sleep(_AGAIN_S)


class PublishedLedger:
    """The ledger of one partition number as the topic `minutes` has it; it reads nothing itself.

    Args:
        topic: name of the topic, for the log.
        partition: partition number of the ledger.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._marker_key = record_keys.closed(partition)
        self._key_suffix = f"/{partition}".encode()
        self._minute_values: dict[bytes, bytes | None] = {}
        self._newest_term = 0
        self._marked_minutes: dict[TopicPartition, int] = {}
        """Partition of the topic to the minute of its newest marker."""
        self.marker: dict[str, Any] | None = None
        """The newest one; None: there is none."""

    def take(self, record: ConsumerRecord) -> None:
        """Take the next record of a partition; what is older than a record before it is left out."""
        self._newest_term = max(self._newest_term, term_of(record.value))
        if record.key == self._marker_key and record.value:
            self._take_marker(record)
        elif (
            record.key
            and record.key.startswith(b"part/")
            and record.key.endswith(self._key_suffix)
            and not is_older_share(record.value, self._minute_values.get(record.key))
        ):
            self._minute_values[record.key] = record.value

    def _take_marker(self, record: ConsumerRecord) -> None:
        """Take a marker, which another program may have written."""
        try:
            marker: dict[str, Any] = orjson.loads(record.value)
            RESTART.validate_python(marker)
        except ValueError as error:
            logger.error("record-unreadable", topic=record.topic, offset=record.offset, error=repr(error))  # noqa: TRY400
            return
        term = marker.get(TERM, 0)
        self._marked_minutes[TopicPartition(record.topic, record.partition)] = marker["minute"]
        if self.marker is None or (
            marker["minute"] >= self.marker["minute"] and not is_overtaken(term, self.marker.get(TERM, 0))
        ):
            self.marker = marker

    def agrees(self, tps: Collection[TopicPartition]) -> bool:
        """Whether all partitions have the same newest marker, or none."""
        return len({self._marked_minutes.get(tp) for tp in tps}) <= 1

    def ledger(self, rules: ClosingRules, generation: int, known_term: int = 0) -> PartitionLedger:
        """The ledger, in a term above all that were published and above those of earlier generations.

        Args:
            rules: when minutes close.
            generation: of the group; it begins again when the group was empty for a while.
            known_term: highest term that this process has seen, also of records that the topic has no more.
        """
        pipe_minutes = []
        for key, value in self._minute_values.items():
            try:
                if value:
                    pipe_minutes.append(read_pipe_minute(value))
            except ValueError as error:
                logger.error("record-unreadable", topic=self._topic, key=repr(key), error=repr(error))  # noqa: TRY400
        marker = self.marker or {"minute": -1, "through": {}, "restart": {}}
        ledger = PartitionLedger.resume(self._partition, rules, marker, pipe_minutes)
        ledger.term = max(self._newest_term, known_term) + max(1, generation)
        return ledger
