"""A cluster that is frozen while transactions are under way has each event once when it goes on."""

import asyncio
import itertools
import random
from collections import Counter
from typing import Any

import orjson
import pytest
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaConnectionError, NotCoordinatorError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import EndTxnRequest, EndTxnResponse_v0
from tests.support.kafka.out_topic import KeyedTopic

from hifi.delivery.kind import DestinationWriter, OutboundEvent
from hifi.runtime.errors import HifiError
from hifi_infra.kafka.cluster import KafkaCluster

LANES = 12
FREEZES = 6
TIMEOUTS_S = 6.0, 9.0
"""Of a write: the controller gives up its frozen broker after 6 s without a heartbeat, so leaders may change."""


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


class LateCommit:
    """The first request to commit seems to fail, and arrives in the next transaction.

    There it is between the positions and the record, which go to two brokers where a cluster has several: here they are
    two requests to one. All requests are real ones; only their ways are played, which nobody can make a network do.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str, answer: EndTxnResponse_v0 | None) -> None:
        self._send = AIOKafkaClient.send
        self._topic = topic
        self._request: EndTxnRequest | None = None
        self.error_code: int | None = None

        async def send(client: AIOKafkaClient, node: int, request: object, **options: Any) -> Any:
            if isinstance(request, EndTxnRequest) and self._request is None:
                self._request = request
                if answer is not None:
                    return answer
                raise KafkaConnectionError("the connection broke")
            if self._request is not None and isinstance(request, ProduceRequest) and self.error_code is None:
                return await self._send_in_two(client, node, request)
            return await self._send(client, node, request, **options)

        monkeypatch.setattr(AIOKafkaClient, "send", send)

    async def _send_in_two(self, client: AIOKafkaClient, node: int, request: ProduceRequest) -> Any:
        assert self._request is not None
        (record,) = [topic for topic in request._topics if topic[0] == self._topic]
        (positions,) = [topic for topic in request._topics if topic[0] != self._topic]
        head = request._transactional_id, request._required_acks, request._timeout
        answer = await self._send(client, node, ProduceRequest(*head, [positions]))
        late_answer = await self._send(client, node, self._request, group=ConnectionGroup.COORDINATION)
        self.error_code = late_answer.error_code
        answer.topics += (await self._send(client, node, ProduceRequest(*head, [record]))).topics
        return answer


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [None, EndTxnResponse_v0(0, NotCoordinatorError.errno)],
    ids=["broken connection", "not the coordinator"],
)
async def test_a_commit_that_arrives_late_does_not_end_the_next_transaction(
    kafka_topic: KeyedTopic, monkeypatch: pytest.MonkeyPatch, answer: EndTxnResponse_v0 | None
) -> None:
    """It would commit the position of an event that is not written yet (KIP-890)."""
    writer = kafka_topic.writer()
    late = LateCommit(monkeypatch, kafka_topic.name, answer)
    await writer.write([outbound(0, 0)])
    for _ in range(10):
        try:
            await writer.write([outbound(0, 1)])
            break
        except HifiError:
            pass
    await writer.write([outbound(0, 2)])
    assert await kafka_topic.history() == [("k0", number) for number in range(3)]
    assert late.error_code, "the late commit was accepted, or never sent"
    await writer.close()
