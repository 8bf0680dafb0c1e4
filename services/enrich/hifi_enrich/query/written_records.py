"""Finds the end of enrich's output, so that a query which follows an interrupted one repeats hardly any record.

Each record of `normalized` becomes one record with the same identity, in the same partition of `enriched` or
`dead-letter`.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import topic_consumer
from hifi.kafka.topic_reader import read_ranges
from hifi.kafka.topics import Topics
from hifi.record.headers import DESTINATION, IDENTITY, REPLAY, SERVICE
from hifi.record.hop import TO_AT, raw_offset, split_hop_unchecked
from hifi.runtime import log
from hifi.spark.kafka_connector import PartitionOffsets

_TIMEOUT_S: Final = 15.0
_OUTPUTS_PER_ROUND: Final = 50_000
"""Records of a partition of an output topic that are read at once: the newest, then earlier ones, until the outputs of
the range begin among them. If that takes too long, records are written again."""
_CLOCK_SKEW_MS: Final = 5_000
"""Largest expected difference between brokers' clocks. With a larger one, records are written again."""

logger = log.get(__name__)


async def skip_written(
    bootstrap: str, client_id: str, topics: Topics, start: PartitionOffsets
) -> dict[int, int]:
    """Move offsets of `normalized` past the records whose output is in Kafka.

    A record is skipped only if its output and that of every skipped record before it has been found.

    Args:
        bootstrap: of Kafka.
        client_id: name in the logs and quotas of the broker.
        topics: of the stream.
        start: partition to the committed offset.

    Returns:
        Partition to the offset of the first record without output; an earlier one, from which records are written
        again, if the search takes over 15 s or meets a record that cannot be parsed.

    Raises:
        aiokafka.errors.KafkaError, OSError: Kafka does not answer.
    """
    offsets = dict(start)
    try:
        async with asyncio.timeout(_TIMEOUT_S), topic_consumer(bootstrap, client_id) as consumer:
            await _skip_written(consumer, topics, offsets)
    except TimeoutError:
        logger.warning("written-records-not-read", timeout_s=_TIMEOUT_S)
    except (KafkaError, OSError):
        raise
    except Exception:  # such as ValueError for a record that the client cannot parse
        logger.exception("written-records-not-read")
    skipped = sum(offsets.values()) - sum(start.values())
    if skipped:
        logger.info("written-records-skipped", records=skipped)
    return offsets


@dataclass(slots=True)
class WrittenOutputs:
    """Outputs of one partition, each of which proves that one record was written. Pure."""

    total: int = 0
    _events: Counter[bytes] = field(default_factory=Counter)
    """By identity; of those that were not replayed."""
    _replays: dict[tuple[bytes, bytes], Counter[bytes]] = field(default_factory=dict)
    """By identity and number of the replay: by the destinations that it went to. Empty: a dead letter of all."""

    def add(self, headers: Sequence[tuple[str, bytes]], *, is_letter: bool) -> None:
        """Note an output.

        Args:
            headers: of the output; one that is no event is left out.
            is_letter: whether it is a dead letter, which has the destination of its input.
        """
        identity = _identity(headers)
        if identity is None:
            return
        self.total += 1
        event, replay = identity
        if not replay:
            self._events[event] += 1
            return
        destinations = _destination(headers) if is_letter else _destinations(headers)
        self._replays.setdefault(identity, Counter())[destinations] += 1

    def take(self, headers: Sequence[tuple[str, bytes]]) -> bool:
        """Whether there is an output of the input with these headers, which then proves no other.

        A replay for one destination (`DESTINATION`) is proved only by an output for that one. An output for none proves
        no such replay, which is written again.
        """
        identity = _identity(headers)
        if identity is None:
            return False
        event, replay = identity
        outputs = self._replays.get(identity, Counter()) if replay else self._events
        key: bytes | None = _destination(headers) if replay else event
        if replay and not key:
            key = next((destinations for destinations, count in outputs.items() if count), None)
        if key is None or not outputs[key]:
            return False
        outputs[key] -= 1
        return True


@dataclass(slots=True)
class _OutputSearch:
    """The search for the outputs of the records of one partition."""

    first: Any
    """The first record."""
    records: int
    """From the first one to the end of `normalized`; each has one output."""
    outputs: WrittenOutputs = field(default_factory=WrittenOutputs)
    reaches_first: bool = False
    """Whether an output of the first record, or of one before it, has been read."""
    _first_identity: tuple[bytes, bytes] | None = field(init=False)
    _first_raw: int = field(init=False)

    def __post_init__(self) -> None:
        """Parse the first record."""
        self._first_identity = _identity(self.first.headers)
        self._first_raw = _raw_offset(self.first.headers)

    def add(self, record: Any, *, is_letter: bool) -> None:
        """Note an output."""
        self.outputs.add(record.headers, is_letter=is_letter)
        if not self.reaches_first:
            identity = _identity(record.headers)
            self.reaches_first = identity is not None and (
                identity == self._first_identity or 0 <= _raw_offset(record.headers) < self._first_raw
            )


async def _skip_written(consumer: Any, topics: Topics, offsets: dict[int, int]) -> None:
    """Move the offsets, partition by partition; the moved offsets are right even if the search is cancelled."""
    partitions = [TopicPartition(topics.normalized, partition) for partition in offsets]
    end_offsets = await consumer.end_offsets(partitions)
    first_ranges: dict[TopicPartition, range] = {}
    for topic_partition in partitions:
        offset = offsets[topic_partition.partition]
        if offset < end_offsets[topic_partition]:
            first_ranges[topic_partition] = range(offset, offset + 1)
    searches: dict[int, _OutputSearch] = {}
    async for records in read_ranges(consumer, first_ranges):
        for record in records:
            unread_records = end_offsets[TopicPartition(record.topic, record.partition)] - record.offset
            searches[record.partition] = _OutputSearch(record, unread_records)
    await _read_outputs(consumer, topics, searches)
    unread_ranges = {
        topic_partition: range(
            offsets[topic_partition.partition],
            min(end_offsets[topic_partition], offsets[topic_partition.partition] + search.outputs.total),
        )
        for topic_partition in first_ranges
        if (search := searches.get(topic_partition.partition)) is not None
    }
    finished_partitions: set[int] = set()
    async for records in read_ranges(consumer, unread_ranges):
        outputs = searches[records[0].partition].outputs
        for record in records:
            if record.partition in finished_partitions or not outputs.take(record.headers):
                finished_partitions.add(record.partition)
                break
            offsets[record.partition] = record.offset + 1


async def _read_outputs(consumer: Any, topics: Topics, searches: Mapping[int, _OutputSearch]) -> None:
    """Read the outputs since the time when the first inputs were appended, backwards until those of the range begin.

    When all dead letters that are read at once are those of other services, earlier ones are not read, since there may
    be any number. Records whose dead letters are among them are written again.
    """
    start_times_ms = {
        TopicPartition(topic, partition): max(0, search.first.timestamp - _CLOCK_SKEW_MS)
        for partition, search in searches.items()
        for topic in (topics.enriched, topics.dead_letter)
    }
    if not start_times_ms:
        return
    start_offsets = await consumer.offsets_for_times(start_times_ms)
    end_offsets = await consumer.end_offsets(list(start_times_ms))
    unread_ranges: dict[TopicPartition, range] = {}
    for topic_partition, start_offset in start_offsets.items():
        if start_offset is not None:
            end_offset = end_offsets[topic_partition]
            most_outputs = max(searches[topic_partition.partition].records, _OUTPUTS_PER_ROUND)
            first_offset = max(start_offset.offset, end_offset - most_outputs)
            unread_ranges[topic_partition] = range(first_offset, end_offset)
    while unread_ranges:
        rounds = {
            topic_partition: offsets[-_OUTPUTS_PER_ROUND:]
            for topic_partition, offsets in unread_ranges.items()
        }
        own_outputs: Counter[TopicPartition] = Counter()
        async for records in read_ranges(consumer, rounds):
            search = searches[records[0].partition]
            is_letter = records[0].topic == topics.dead_letter
            for record in records:
                if not is_letter or _is_from_enrich(record):
                    search.add(record, is_letter=is_letter)
                    own_outputs[TopicPartition(record.topic, record.partition)] += 1
        unread_ranges = {
            topic_partition: offsets[:-_OUTPUTS_PER_ROUND]
            for topic_partition, offsets in unread_ranges.items()
            if len(offsets) > _OUTPUTS_PER_ROUND
            and own_outputs[topic_partition]
            and not searches[topic_partition.partition].reaches_first
        }


def _identity(headers: Sequence[tuple[str, bytes]]) -> tuple[bytes, bytes] | None:
    """Identity of an event and the number of its replay; None: the record is not an event."""
    if not headers or headers[0][0] != IDENTITY:
        return None
    return headers[0][1], dict(headers).get(REPLAY, b"")


def _destination(headers: Sequence[tuple[str, bytes]]) -> bytes:
    """The only destination of a replay; empty: it is for all."""
    return dict(headers).get(DESTINATION, b"")


def _destinations(headers: Sequence[tuple[str, bytes]]) -> bytes:
    """The destinations of a record of `enriched`, separated by commas."""
    hop_texts = split_hop_unchecked(headers) if len(headers) > 1 else []
    return hop_texts[TO_AT] if len(hop_texts) > TO_AT else b""


def _raw_offset(headers: Sequence[tuple[str, bytes]]) -> int:
    """The offset of an event in `raw`; -1: it is not known, or the event was replayed and has an old one."""
    if len(headers) < 2 or REPLAY in dict(headers):
        return -1
    return raw_offset(split_hop_unchecked(headers), -1)


def _is_from_enrich(record: Any) -> bool:
    return dict(record.headers).get(SERVICE) == b"enrich"
