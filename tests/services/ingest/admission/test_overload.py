"""An overloaded ingest, or one with an overloaded stage behind it, refuses early; real HTTP, real Kafka."""

import asyncio
import contextlib
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.support.ingest.ingest_harness import Ingest, Stream, ingest, new_stream, pipe
from tests.support.ingest.sender import Sender, told, until
from tests.support.stream_process import PARTITIONS

from hifi.delivery import stage_monitor
from hifi.kafka.producer import Producer
from hifi.record.record import Record
from hifi.runtime.health import Health
from hifi_ingest.admission import backlog_monitor
from hifi_ingest.admission.backlog_limit import BacklogLimit
from hifi_ingest.admission.backlog_monitor import BacklogMonitor


class Stages:
    """Stands for the stages behind ingest: commits offsets for their groups."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.topics = stream.topics
        self._committed: dict[str, dict[TopicPartition, int]] = {}
        self._consumers: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        self._reader = AIOKafkaConsumer(bootstrap_servers=self.stream.kafka)
        await self._reader.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for consumer in (self._reader, *self._consumers.values()):
            await consumer.stop()

    async def end_offsets(self, topic: str) -> dict[TopicPartition, int]:
        end_offsets: dict[TopicPartition, int] = await self._reader.end_offsets(
            [TopicPartition(topic, number) for number in range(PARTITIONS)]
        )
        return end_offsets

    async def commit(self, service: str, topic: str, limit: int | None = None) -> None:
        """Commit up to the ends, or at most `limit` further records of each partition."""
        consumer = self._consumers.get(service)
        if consumer is None:
            consumer = self._consumers[service] = AIOKafkaConsumer(
                bootstrap_servers=self.stream.kafka,
                group_id=self.topics.group(service),
                enable_auto_commit=False,
            )
            await consumer.start()
        committed = self._committed.get(topic, {})
        offsets = {
            tp: end if limit is None else min(end, committed.get(tp, 0) + limit)
            for tp, end in (await self.end_offsets(topic)).items()
        }
        consumer.assign(list(offsets))
        await consumer.commit(offsets)
        self._committed[topic] = offsets

    @contextlib.asynccontextmanager
    async def completing(self, service: str, topic: str, limit: int) -> AsyncIterator[None]:
        """Commit four times a second while the block runs, then everything."""

        async def loop() -> None:
            while True:
                await self.commit(service, topic, limit)
                await asyncio.sleep(0.25)

        task = asyncio.create_task(loop())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            await self.commit(service, topic)


def overloaded(instance: Ingest, cause: str) -> float:
    """The number of requests that were refused for a cause, by the metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{instance.admin}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    name = f'hifi_ingest_overloaded_requests_total{{cause="{cause}"}}'
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


async def test_more_requests_than_ingest_can_answer_are_refused_and_the_accepted_ones_are_written(
    kafka: str, log: Path
) -> None:
    stream = await new_stream(kafka, pipe())
    with ingest(kafka, stream.name, log, ingest_max_queue_s=0.02, ingest_ack_timeout_s=60) as instance:
        sender = Sender(instance)
        async with sender.sending(connections=150):
            await until(lambda: sender.statuses[429] > 100 and sender.statuses[202] > 100)
        assert set(sender.statuses) == {202, 429}
        assert {retry_after_s for retry_after_s, _ in sender.refusals} == {"1"}
        assert "ingest is overloaded" in sender.refusals[0][1]["detail"]
        assert overloaded(instance, "queue") == sender.statuses[429]

        async with sender.sending(connections=1) as client:
            await until(lambda: sender.statuses[202] > 100)
            assert await sender.post(client) == 202, "it accepts again when the load ends"
        assert instance.stop() == 0
    raw = [dict(record.headers)["ce_id"].decode() for record in await stream.raw()]
    assert Counter(raw) == Counter(sender.accepted), "every accepted event is written, no refused one is"
    assert await told(stream) == sender.statuses


async def test_an_overloaded_stage_gets_what_it_completes_and_everything_when_it_has_caught_up(
    kafka: str, log: Path
) -> None:
    stream = await new_stream(kafka, pipe())
    raw = stream.topics.raw
    async with Stages(stream) as stages:
        with ingest(kafka, stream.name, log, ingest_max_backlog_s=1) as instance:
            sender = Sender(instance)
            async with sender.sending(connections=2, pause_s=0.1), stages.completing("normalize", raw, 20):
                await until(lambda: sender.statuses[429] > 5)
                assert "backlog" in instance.readyz()[1]["warnings"]
                accepted_before = sender.statuses[202]
                await until(lambda: sender.statuses[202] > accepted_before + 5)
            assert "normalize is overloaded" in sender.refusals[0][1]["detail"]
            assert all(int(retry_after_s or 0) >= 1 for retry_after_s, _ in sender.refusals)
            assert overloaded(instance, "backlog") == sender.statuses[429] == len(sender.refusals)

            async with (
                sender.sending(connections=1, pause_s=0.1),
                stages.completing("normalize", raw, 10_000),
            ):
                await until(lambda: instance.readyz()[1]["warnings"] == {})
                refused_before, accepted_before = sender.statuses[429], sender.statuses[202]
                await until(lambda: sender.statuses[202] > accepted_before + 20)
                assert sender.statuses[429] == refused_before
            assert instance.stop() == 0
    assert set(sender.statuses) == {202, 429}
    assert len(await stream.raw()) == len(sender.accepted)
    assert await told(stream) == sender.statuses


@pytest.mark.parametrize("destination_down", [True, False], ids=["destination down", "egest slow"])
@pytest.mark.more
async def test_a_backlog_of_egest_counts_unless_a_destination_is_the_cause(
    kafka: str, destination_down: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_monitor, "_EGEST_BOUND_S", 1.0)
    monkeypatch.setattr(backlog_monitor, "_CALM_S", 0.5)
    stream = await new_stream(kafka, pipe())
    topics, limit = stream.topics, BacklogLimit()
    monitor = BacklogMonitor(kafka, "test", topics, PARTITIONS, limit, Health("ingest", "test"), 1.0)
    producer = Producer(kafka, "test")
    await producer.start()
    stage = monitor._stages.stages[topics.enriched]

    async def deliver() -> None:
        """Egest gets more than it completes; deliveries to a destination that is down go to the retrier."""
        while True:
            await asyncio.gather(
                *(
                    producer.send_and_wait(topics.enriched, partition, [Record(b"k", b"v", [])] * 200)
                    for partition in range(PARTITIONS)
                )
            )
            if destination_down:
                await producer.send_and_wait(topics.retry_in(topics.tiers[0]), 0, [Record(b"k", b"v", [])])
            await asyncio.sleep(0.1)

    def is_late() -> bool:
        reading = stage.read()
        return reading is not None and reading.lag_s > 3 and reading.steady

    async with Stages(stream) as stages, stages.completing("egest", topics.enriched, 20):
        tasks = [asyncio.create_task(coroutine) for coroutine in (monitor.run(), deliver())]
        try:
            await until(is_late)
            if destination_down:
                assert limit.rate_per_s is None
            else:
                await until(lambda: limit.rate_per_s is not None)
                assert limit.service == "egest"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    await producer.stop()


async def test_without_kafka_the_backlog_limits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_monitor, "_RETRY_S", 0.05)
    health, limit = Health("ingest", "test"), BacklogLimit()
    limit.rate_per_s = 1.0
    monitor = BacklogMonitor("127.0.0.1:9", "test", Stream("", "s").topics, 1, limit, health, 1.0)
    task = asyncio.create_task(monitor.run())
    await until(lambda: limit.rate_per_s is None)
    task.cancel()
    await asyncio.wait({task})
