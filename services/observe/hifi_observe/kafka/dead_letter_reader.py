"""Follow the dead letters that normalize writes."""

import asyncio
from collections.abc import Callable
from typing import Final

from aiokafka import TopicPartition

from hifi.kafka.clients import topic_consumer
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.kafka.topics import Topics
from hifi.record.fields import fields
from hifi.record.headers import PIPE, POINTER, REASON, REPLAY, SERVICE, Headers
from hifi.runtime.clock import now_us
from hifi_observe.ledger.grouping import UNREADABLE

_INTERVAL_S: Final = 2.0
_RECORDS: Final = 100_000
"""Dead letters of a partition that are read at a time; beyond, the oldest are left out: the newest say enough."""
_FETCH_BYTES: Final = 1024 * 1024


Refused = Callable[[str, str, str, int], None]
"""Called with pipe, reason, JSON pointer and time (milliseconds since 1970 UTC) of a dead letter."""


class DeadLetterReader:
    """Reads the topic `dead-letter`.

    Args:
        settings: of the service.
        topics: of the stream.
        partitions: of the stream.
        window_s: age of the oldest dead letters that are read at the start, seconds.
        refused: called for each dead letter of normalize that is not of a replay.
    """

    def __init__(
        self, settings: ServiceSettings, topics: Topics, partitions: int, window_s: float, refused: Refused
    ) -> None:
        self._settings = settings
        self._partitions = [TopicPartition(topics.dead_letter, number) for number in range(partitions)]
        self._window_ms = round(window_s * 1000)
        self._refused = refused
        self._next_offsets: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Read what is written from now on, and before that what the window holds, until cancelled.

        Raises:
            aiokafka.errors.KafkaError: Kafka did not answer; run it again.
        """
        async with topic_consumer(
            self._settings.kafka, self._settings.instance, fetch_max_bytes=_FETCH_BYTES
        ) as consumer:
            while True:
                since_ms = None if self._next_offsets else now_us() // 1000 - self._window_ms
                ranges = await offset_ranges(consumer, self._partitions, since_ms)
                unread_ranges = {
                    tp: range(
                        max(offsets.start, self._next_offsets.get(tp, 0), offsets.stop - _RECORDS),
                        offsets.stop,
                    )
                    for tp, offsets in ranges.items()
                }
                async for records in read_ranges(consumer, unread_ranges):
                    for record in records:
                        self._count(record.headers, record.timestamp)
                self._next_offsets = {tp: offsets.stop for tp, offsets in ranges.items()}
                await asyncio.sleep(_INTERVAL_S)

    def _count(self, headers: Headers, at_ms: int) -> None:
        try:
            letter_fields = fields(headers)
            if letter_fields.get(SERVICE) != b"normalize" or letter_fields.get(REPLAY):
                return
            pipe, reason, pointer = (
                letter_fields.get(name, b"").decode("utf-8", "replace") for name in (PIPE, REASON, POINTER)
            )
        except UNREADABLE:
            return  # the ledger counts it as foreign
        self._refused(pipe, reason, pointer, at_ms)
