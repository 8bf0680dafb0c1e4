"""Follow the topics `minutes` and `alarms` from their beginning, so that every instance can show everything."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import TopicPartition

from hifi.kafka.clients import close
from hifi.kafka.topics import Topics
from hifi.runtime.clock import monotonic_s
from hifi_observe.kafka.topic_reader import bare_consumer
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.settings import ObserveSettings

_BATCH = 2000


class MinutesFollower:
    """Reads minutes into the store and passes alarms on. `loaded` is set once everything published so far was read."""

    def __init__(
        self,
        settings: ObserveSettings,
        topics: Topics,
        store: MinuteStore,
        alarms: Callable[[bytes | None, bytes | None], None],
    ) -> None:
        self.loaded = asyncio.Event()
        self.answered_s = monotonic_s()
        """When Kafka last returned a record, monotonic clock."""
        self._settings = settings
        self._topics = topics
        self._store = store
        self._alarms = alarms
        self._positions: dict[TopicPartition, int] = {}

    async def run(self, partitions: int) -> None:
        """Follow until cancelled; continues at its last position when it is run again.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka is unreachable.
        """
        consumer: Any = bare_consumer(self._settings, wait_ms=200)
        await consumer.start()
        try:
            tps = [TopicPartition(self._topics.minutes, number) for number in range(partitions)]
            tps.append(TopicPartition(self._topics.alarms, 0))
            ends = await consumer.end_offsets(tps)
            beginnings = await consumer.beginning_offsets(tps)
            consumer.assign(tps)
            for tp in tps:
                self._positions[tp] = max(self._positions.get(tp, 0), beginnings[tp])
                consumer.seek(tp, self._positions[tp])
            while True:
                for tp in tps:
                    self._positions[tp] = await consumer.position(tp)
                if not self.loaded.is_set() and all(self._positions[tp] >= ends[tp] for tp in tps):
                    self.loaded.set()
                fetched = await consumer.getmany(timeout_ms=500, max_records=_BATCH)
                for tp, records in fetched.items():
                    self.answered_s = monotonic_s()
                    for record in records:
                        if tp.topic == self._topics.alarms:
                            self._alarms(record.key, record.value)
                        else:
                            self._store.take(record.key, record.value)
                await asyncio.sleep(0)
        finally:
            await close(consumer)
