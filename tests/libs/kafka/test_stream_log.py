"""The identity of a stream's log is that of the topic `raw` that there is. Without a Kafka."""

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from hifi.kafka import stream_log
from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.stream_log import StreamLog
from hifi.kafka.topic_identity import TopicIdentity
from hifi.kafka.topics import Topics
from hifi.runtime.errors import Fenced, Misconfigured
from hifi.runtime.health import Health


class IdentifyingKafka:
    """Says the id of `raw`, at once or when it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.raw_id = "first"
        self.requests = 0
        self.failures = 0
        self.answers = asyncio.Event()
        self.answers.set()
        monkeypatch.setattr(stream_log, "topic_identity", self._identity)
        monkeypatch.setattr(stream_log, "_RETRY_S", 0)

    async def _identity(self, *_: Any) -> TopicIdentity:
        self.requests += 1
        raw_id = self.raw_id
        await self.answers.wait()
        if self.failures:
            self.failures -= 1
            raise KafkaConnectionError("nobody is there")
        return TopicIdentity("cluster", raw_id)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> IdentifyingKafka:
    return IdentifyingKafka(monkeypatch)


def assigned(partition: int = 0) -> AssignedPartition:
    return AssignedPartition(TopicPartition("s.enriched", partition))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def started() -> StreamLog:
    log = StreamLog("nowhere:1", Topics("s"), Health("egest", "i"))
    await log.start()
    return log


async def test_a_topic_that_was_created_again_is_known_when_a_partition_is_assigned(
    kafka: IdentifyingKafka,
) -> None:
    log = await started()
    kafka.raw_id = "second"
    assert log.identity() == "first"
    assert await log.identity_at(assigned()) == "second"
    assert log.identity() == "second"


async def test_partitions_that_are_assigned_together_share_a_request_that_is_not_older(
    kafka: IdentifyingKafka,
) -> None:
    log = await started()
    kafka.answers.clear()
    first_asking = asyncio.create_task(log.identity_at(assigned()))
    await turns()
    kafka.raw_id = "second"
    others_asking = [asyncio.create_task(log.identity_at(assigned(number))) for number in range(1, 20)]
    await turns()
    kafka.answers.set()
    assert await first_asking == "first"
    assert await asyncio.gather(*others_asking) == ["second"] * 19
    assert kafka.requests == 3, "one at the start, one for the first, one for the others"


async def test_it_is_asked_for_until_kafka_answers(kafka: IdentifyingKafka) -> None:
    log = await started()
    kafka.failures, kafka.raw_id = 3, "second"
    assert await log.identity_at(assigned()) == "second"


async def test_a_partition_that_is_revoked_before_kafka_answers_is_left(kafka: IdentifyingKafka) -> None:
    log, partition = await started(), assigned()
    kafka.failures = 1
    partition.revoke()
    with pytest.raises(Fenced):
        await log.identity_at(partition)
    await partition.drain()
    assert log.identity() == "first"


async def test_an_answer_from_before_the_offsets_began_anew_is_not_taken(kafka: IdentifyingKafka) -> None:
    log = await started()
    kafka.answers.clear()
    asking = asyncio.create_task(log.identity_at(assigned()))
    await turns()
    kafka.raw_id = "second"
    log.read_anew()
    with pytest.raises(Misconfigured):
        log.identity()
    kafka.answers.set()
    assert await asking == "second"
    assert log.identity() == "second"
    await log.stop()
