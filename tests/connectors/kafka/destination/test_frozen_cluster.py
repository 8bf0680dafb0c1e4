"""A cluster that is frozen while transactions are under way has each event once when it goes on."""

import asyncio
import itertools
import random
from collections import Counter

import orjson
import pytest
from tests.support.kafka.out_topic import KeyedTopic

from hifi.delivery.kind import DestinationWriter, OutboundEvent
from hifi.runtime.errors import HifiError
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_kafka.destination import transactions

LANES = 12
FREEZES = 6
TIMEOUTS_S = 6.0, 9.0
"""Of a write: the controller gives up its frozen broker after 9 s without a heartbeat, so leaders may change."""


def outbound(partition: int, offset: int, *, is_retried: bool = False) -> OutboundEvent:
    key = f"k{partition}"
    data, attributes = orjson.dumps({"key": key, "number": offset}), {"subject": key}
    return OutboundEvent(
        data, "application/json", attributes, key.encode(), "0b" * 16, partition, offset, 0, is_retried
    )


class Lanes:
    """Lanes that write one event after the other, as egest does with one of each partition."""

    def __init__(self, topic: KeyedTopic, seed: int) -> None:
        self._topic = topic
        self._random_source = random.Random(seed)
        self.failures = 0
        self.written: set[tuple[str, int]] = set()
        self.stopping = False
        self.writers: list[DestinationWriter] = []

    async def run(self, partition: int) -> None:
        writer = self._open()
        for offset in itertools.count():
            if self.stopping:
                return
            is_retried = False
            while True:
                event = outbound(partition, offset, is_retried=is_retried)
                try:
                    async with asyncio.timeout(self._random_source.uniform(*TIMEOUTS_S)):
                        await writer.write([event])
                    break
                except (HifiError, TimeoutError):
                    self.failures += 1
                if self._random_source.random() < 0.2:  # it comes back by the retrier
                    is_retried = True
                if self._random_source.random() < 0.2:  # another instance takes over
                    writer = self._open()
            self.written.add((f"k{partition}", offset))

    def _open(self) -> DestinationWriter:
        writer = self._topic.writer()
        self.writers.append(writer)
        return writer

    async def fail(self) -> None:
        """Wait until one to all of the lanes have failed once more."""
        failures = self.failures + self._random_source.randint(1, LANES)
        while self.failures < failures:
            await asyncio.sleep(0.05)

    async def write_some(self) -> None:
        """Wait until some hundred events more are written."""
        count = len(self.written) + self._random_source.randint(100, 300)
        while len(self.written) < count:
            await asyncio.sleep(0.05)


@pytest.mark.more  # two minutes; in CI: test_kills_in_mid_transaction_lose_and_repeat_nothing
@pytest.mark.timeout(900)
async def test_a_cluster_frozen_in_mid_transaction_loses_and_repeats_nothing(
    destination_cluster: KafkaCluster, kafka_topic: KeyedTopic
) -> None:
    lanes = Lanes(kafka_topic, seed=11)
    tasks = [asyncio.create_task(lanes.run(partition)) for partition in range(LANES)]
    for _ in range(FREEZES):
        await lanes.write_some()
        destination_cluster.pause_broker(1)
        try:
            await lanes.fail()
        finally:
            destination_cluster.resume_broker(1)
    lanes.stopping = True
    await asyncio.gather(*tasks)
    await asyncio.gather(*(writer.close() for writer in lanes.writers))
    assert Counter(await kafka_topic.history()) == Counter(lanes.written)


@pytest.mark.slow
async def test_after_a_slow_transaction_the_next_one_has_a_new_producer(
    destination_cluster: KafkaCluster, kafka_topic: KeyedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated request that arrives late would end the next transaction of the same producer (KIP-890)."""
    writer = kafka_topic.writer()
    await writer.write([outbound(0, 0)])
    (partition,) = writer._partitions.values()  # type: ignore[attr-defined]
    producer = partition._producer
    await writer.write([outbound(0, 1)])
    assert partition._producer is producer
    monkeypatch.setattr(transactions, "_SLOW_S", 0.5)
    destination_cluster.pause_broker(1)
    try:
        writing = asyncio.create_task(writer.write([outbound(0, 2)]))
        await asyncio.wait({writing}, timeout=1)
    finally:
        destination_cluster.resume_broker(1)
    await writing
    monkeypatch.undo()
    await writer.write([outbound(0, 3)])
    assert partition._producer not in (producer, None)
    assert await kafka_topic.history() == [("k0", number) for number in range(4)]
    await writer.close()
