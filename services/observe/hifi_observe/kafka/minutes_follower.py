"""Follow observe's own topics from their beginning, so that every instance can show everything."""

import asyncio
from collections.abc import Callable
from typing import Final

from aiokafka import ConsumerRecord, TopicPartition

from hifi.kafka.topic_follower import PartitionFollower, TakeRecord
from hifi.kafka.topics import Topics
from hifi.runtime.clock import monotonic_s
from hifi.runtime.trusted_clock import read_clocks
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.settings import ObserveSettings
from hifi_observe.watermark.watermark_store import WatermarkStore

WRITER: Final = "hifi_writer"
"""Header of watermarks: the process that wrote them."""
_GATHER_MS: Final = 200
_GATHER_BYTES: Final = 1024 * 1024
"""A record may wait for others for 200 ms, which saves the mesh CPU time."""


class MinutesFollower:
    """Reads minutes and watermarks into their stores and passes alarms on.

    `loaded` is set once everything published so far was read.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        topics: Topics,
        store: MinuteStore,
        watermarks: WatermarkStore,
        alarms: Callable[[bytes | None, bytes | None], None],
    ) -> None:
        self.loaded = asyncio.Event()
        self.answered_s = monotonic_s()
        """When Kafka last returned a record, monotonic clock."""
        self._settings = settings
        self._topics = topics
        self._store = store
        self._watermarks = watermarks
        self._alarms = alarms

    async def run(self, partitions: int) -> None:
        """Follow until cancelled; while Kafka is away what was read last holds."""
        handlers: dict[TopicPartition, TakeRecord] = {
            TopicPartition(self._topics.minutes, number): self._take_minute for number in range(partitions)
        }
        handlers[TopicPartition(self._topics.watermarks, 0)] = self._take_watermark
        handlers[TopicPartition(self._topics.alarms, 0)] = self._take_alarm
        settings = self._settings
        follower = PartitionFollower(
            settings.kafka, settings.instance, handlers, wait_ms=_GATHER_MS, gather_bytes=_GATHER_BYTES
        )
        try:
            await follower.start()
            await self._note_answer()
            self.loaded.set()
            await follower.follow(self._note_answer)
        finally:
            await follower.stop()

    async def _note_answer(self) -> None:
        self.answered_s = monotonic_s()

    def _take_minute(self, record: ConsumerRecord) -> None:
        kind, *key_parts = record_keys.split(record.key or b"")
        if kind == record_keys.WATERMARK:
            read_us = read_clocks().monotonic_us
            self._watermarks.read_part(int(key_parts[0]), record.value, record.timestamp, read_us)
        else:
            self._store.take(record.key, record.value)

    def _take_watermark(self, record: ConsumerRecord) -> None:
        self._watermarks.read(record.key, record.value, dict(record.headers).get(WRITER, b""))

    def _take_alarm(self, record: ConsumerRecord) -> None:
        self._alarms(record.key, record.value)
