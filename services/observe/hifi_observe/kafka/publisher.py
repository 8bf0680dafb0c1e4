"""Write to the topics `minutes`, `watermarks` and `alarms`."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from hifi.kafka.producer import Producer, is_sendable
from hifi.kafka.topics import Topics
from hifi.record.record import Record
from hifi.runtime import log
from hifi_observe.kafka.minutes_follower import WRITER
from hifi_observe.ledger.closing import MinuteResult
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.figures_pieces import pieces_of
from hifi_observe.minutes.merged_minute import dump
from hifi_observe.minutes.terms import with_term
from hifi_observe.watermark.part import WatermarkPart
from hifi_observe.watermark.statement import Watermark

logger = log.get(__name__)


def sendable_record(
    key: bytes, bodies: Iterable[dict[str, Any]], without_names: Callable[[], dict[str, Any]]
) -> Record:
    """The record with the first of several bodies that a topic takes.

    Args:
        key: of the record.
        bodies: forms of the same.
        without_names: gives the body if it takes none of them.
    """
    for body in bodies:
        record = Record(key, orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS), [])
        if is_sendable(record):
            return record
    logger.warning("names-left-out", key=key.decode(), reason="the record would be too large")
    return Record(key, orjson.dumps(without_names(), option=orjson.OPT_NON_STR_KEYS), [])


class Publisher:
    """Writes everything that observe writes to Kafka.

    Args:
        producer: to be started by `start`.
        topics: of the stream.
        partitions: returns the partition count of the stream, from the start on.
    """

    def __init__(self, producer: Producer, topics: Topics, partitions: Callable[[], int]) -> None:
        self._producer = producer
        self._topics = topics
        self._partitions = partitions
        self.connected = False
        """Whether it has started."""

    async def start(self) -> None:
        """Connect; tries again until Kafka answers."""
        await self._producer.start()
        self.connected = True

    async def stop(self) -> None:
        """Flush and disconnect, within 5 s."""
        await self._producer.stop(timeout_s=5)

    @property
    def partitions(self) -> int:
        """Partition count of the stream."""
        return self._partitions()

    async def closed(
        self,
        partition: int,
        minute_results: Sequence[MinuteResult],
        marker: dict[str, Any],
        at_us: int,
        term: int,
    ) -> None:
        """Write closed minutes, then the marker: after a restart in between, the minutes are closed again.

        Args:
            partition: number.
            minute_results: of its ledger.
            marker: of its ledger.
            at_us: when they closed, microseconds since 1970 UTC.
            term: of the owner of the partition number.
        """
        records_by_partition: defaultdict[int, list[Record]] = defaultdict(list)
        for minute_result in minute_results:
            pipe_minute = minute_result.pipe_minute
            key = record_keys.part(pipe_minute.pipe, pipe_minute.minute, partition)
            dumped = partial(dump, minute_result, partition, at_us, term=term)
            bodies = (dumped(sets_once=sets_once) for sets_once in (False, True))
            records_by_partition[record_keys.partition_of(pipe_minute.pipe, self.partitions)].append(
                sendable_record(key, bodies, partial(dumped, with_identities=False))
            )
        for number, records in records_by_partition.items():
            await self._producer.send_and_wait(self._topics.minutes, number, records)
        record = Record(
            record_keys.closed(partition),
            orjson.dumps(with_term(term, marker | {"at": at_us}), option=orjson.OPT_NON_STR_KEYS),
            [],
        )
        for number in range(self.partitions):
            await self._producer.send_and_wait(self._topics.minutes, number, [record])

    async def pipe(self, pipe: str, records: Sequence[tuple[bytes, dict[str, Any] | None]]) -> None:
        """Write merged minutes and days of a pipe; None deletes."""
        topic_records = [
            Record(key, None, [])
            if value is None
            else sendable_record(key, [value], partial(value.__or__, {"lost_ids": [], "late_ids": []}))
            for key, value in records
        ]
        await self._producer.send_and_wait(
            self._topics.minutes, record_keys.partition_of(pipe, self.partitions), topic_records
        )

    async def live(self, partition: int, value: dict[str, Any]) -> None:
        """Write momentary figures of a partition number, in one record if it has room, which 0.1.0rc1 reads.

        Of several the first piece is the last record, and completes them.
        """
        records = [Record(record_keys.live(partition), orjson.dumps(value), [])]
        if not is_sendable(records[0]):
            records = [
                Record(record_keys.live(partition, number), orjson.dumps(piece), [])
                for number, piece in reversed(list(enumerate(pieces_of(value))))
            ]
        await self._producer.send_and_wait(self._topics.minutes, partition, records)

    async def open_minutes(self, partition: int, rows: list[dict[str, Any]]) -> None:
        """Write provisional figures of minutes that are still open."""
        record = Record(record_keys.open_minutes(partition), orjson.dumps({"rows": rows}), [])
        await self._producer.send_and_wait(self._topics.minutes, partition, [record])

    async def watermark_part(self, partition: int, value: WatermarkPart) -> None:
        """Write the part of a partition number in the watermarks."""
        record = Record(record_keys.watermark(partition), orjson.dumps(value), [])
        await self._producer.send_and_wait(self._topics.minutes, partition, [record])

    async def watermarks(self, statements: Mapping[bytes, Watermark | None], writer: str) -> None:
        """Write statements by their keys; None deletes."""
        headers = [(WRITER, writer.encode())]
        records = [
            Record(key, None if statement is None else orjson.dumps(statement), headers)
            for key, statement in statements.items()
        ]
        await self._producer.send_and_wait(self._topics.watermarks, 0, records)

    async def front(self, minute: int, value: dict[str, Any] | None) -> None:
        """Write the front's refusals of a minute; None deletes."""
        record = Record(record_keys.front(minute), None if value is None else orjson.dumps(value), [])
        await self._producer.send_and_wait(self._topics.minutes, 0, [record])

    async def alarm(self, identity: str, value: object) -> None:
        """Write an alarm's start or end, or a silence; all to one partition, so that they stay in order."""
        await self._producer.send_and_wait(
            self._topics.alarms, 0, [Record(identity.encode(), orjson.dumps(value), [])]
        )
