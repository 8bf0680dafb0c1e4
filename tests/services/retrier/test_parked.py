"""A destination that stays down does not multiply its deliveries: they are parked once, and come back once."""

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tests.support.egest.egest_stream import EgestStream, pipe, process, running_egest, texts, until
from tests.support.egest.fake_destination import OK, ReceivedRequest, answer, destination
from tests.support.retrier.running_retrier import retrying

from hifi.delivery.destination_state import (
    EGEST,
    DestinationName,
    DestinationState,
    StateChange,
    state_record,
)
from hifi.record.headers import DETAIL, OUTCOME, REASON
from hifi.runtime.clock import now_us

DATA = b'"' + b"x" * 4000 + b'"'
PATIENT: dict[str, Any] = {
    "retry": {"local_attempts": 1, "max_attempts": 1000},
    "breaker": {"failures": 2, "probe": 1},
}


class Outage:
    """A destination that is down until `over`; notes what it accepts."""

    def __init__(self) -> None:
        self.over = False
        self.accepted: Counter[str] = Counter()

    async def reply(self, request: ReceivedRequest) -> bytes:
        if not self.over:
            return answer(503)
        self.accepted.update(request.ids)
        return OK


async def set_state(stream: EgestStream, state: DestinationState) -> None:
    change = StateChange(state, "operator", "test", now_us())
    record = state_record(DestinationName("flights", "d"), change)
    await stream.producer.send_and_wait(stream.topics.destinations, 0, [record])


def size_bytes(records: list[ConsumerRecord]) -> int:
    return sum(
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name) + len(value) for name, value in record.headers)
        for record in records
    )


async def waiting(stream: EgestStream) -> list[ConsumerRecord]:
    """Records of deliveries that could not be delivered."""
    topics = [stream.topics.retry_in(tier) for tier in stream.topics.tiers]
    topics += [stream.topics.retry_out, stream.topics.parked]
    return [record for topic in topics for record in await stream.read(topic)]


async def outcomes(stream: EgestStream) -> Counter[str]:
    return Counter(texts(record)[OUTCOME] for record in await stream.read(stream.topics.receipts))


async def parked(stream: EgestStream) -> Counter[str]:
    return Counter(texts(record)["ce_id"] for record in await stream.read(stream.topics.parked))


@pytest.mark.more
async def test_an_outage_costs_half_as_much_again_and_every_delivery_arrives_once_after_it(
    stream: EgestStream, tmp_path: Path
) -> None:
    outage, other_outage = Outage(), Outage()
    other_outage.over = True
    settings: dict[str, Any] = {"egest_park_bytes": 50_000, "session_timeout_s": 6}
    async with destination(outage.reply) as receiver, destination(other_outage.reply) as other_receiver:
        await stream.publish(pipe(receiver.url, **PATIENT), pipe(other_receiver.url, "orders"))
        async with retrying(stream, retrier_probe_s=2):
            with process(stream, tmp_path / "1.log", **settings) as egest:
                await egest.ready()
                ids = await stream.send(20, data=DATA)
                await stream.at_least(stream.topics.parked, 1)
                for partition in (0, 1):
                    ids += await stream.send(140, partition=partition, data=DATA)
                other_ids = await stream.send(50, pipe="orders")
                await until(lambda: other_outage.accepted == Counter(other_ids))
                async with asyncio.timeout(60):
                    while (await outcomes(stream))["delivered"] < len(other_ids):
                        pass
                await stream.at_least(stream.topics.parked, 100)
                egest.stop(signal.SIGKILL)
            with process(stream, tmp_path / "2.log", **settings) as egest:
                await egest.ready()
                async with asyncio.timeout(60):
                    while not set(ids) <= (await parked(stream)).keys():
                        pass
                extra_bytes, enriched_bytes = (
                    size_bytes(await waiting(stream)),
                    size_bytes(await stream.read(stream.topics.enriched)),
                )
                assert extra_bytes <= 1.5 * enriched_bytes, extra_bytes / enriched_bytes
                assert other_outage.accepted == Counter(other_ids)
                outage.over = True
                await until(lambda: set(ids) <= outage.accepted.keys())
                assert egest.stop() == 0
    assert outage.accepted == Counter(ids)
    assert await stream.read(stream.topics.dead_letter) == []
    receipts = await outcomes(stream)
    assert receipts["delivered"] == len(ids) + len(other_ids)
    assert receipts["parked"] >= len(ids)


async def test_an_operator_parks_and_resumes_a_destination(stream: EgestStream) -> None:
    outage = Outage()
    outage.over = True
    async with destination(outage.reply) as receiver, retrying(stream):
        await set_state(stream, DestinationState.PARKED)
        async with running_egest(stream, pipe(receiver.url)):
            ids = await stream.send(450) + await stream.send(20, partition=1)
            await stream.at_least(stream.topics.parked, 470)
            assert outage.accepted == Counter()
            await set_state(stream, DestinationState.ACTIVE)
            await until(lambda: len(outage.accepted) == 470)
    assert outage.accepted == Counter(ids)


async def test_a_retrier_that_is_killed_while_it_brings_deliveries_back_costs_none_and_repeats_none(
    stream: EgestStream, tmp_path: Path
) -> None:
    outage = Outage()
    outage.over = True
    settings: dict[str, Any] = {"session_timeout_s": 6}
    async with destination(outage.reply) as receiver:
        await set_state(stream, DestinationState.PARKED)
        async with running_egest(stream, pipe(receiver.url, rate=300)):
            ids = [
                event_id for partition in (0, 1) for event_id in await stream.send(900, partition=partition)
            ]
            await stream.at_least(stream.topics.parked, len(ids))
            with process(stream, tmp_path / "1.log", "retrier", **settings) as first_retrier:
                await first_retrier.ready()
                await set_state(stream, DestinationState.ACTIVE)
                await until(lambda: len(outage.accepted) > 100)
                first_retrier.stop(signal.SIGKILL)
            assert len(outage.accepted) < len(ids), "it was killed while it brought them back"
            with process(stream, tmp_path / "2.log", "retrier", **settings):
                await until(lambda: set(ids) <= outage.accepted.keys())
    assert outage.accepted == Counter(ids)
    assert await stream.read(stream.topics.dead_letter) == []


async def test_what_an_operator_expires_becomes_dead_letters_and_new_events_are_delivered(
    stream: EgestStream,
) -> None:
    outage = Outage()
    outage.over = True
    async with destination(outage.reply) as receiver:
        await set_state(stream, DestinationState.PARKED)
        async with retrying(stream), running_egest(stream, pipe(receiver.url)):
            ids = await stream.send(5)
            await stream.at_least(stream.topics.parked, 5)
        await set_state(stream, DestinationState.EXPIRING)
        async with retrying(stream), running_egest(stream):  # another retrier knows where they begin
            letters = await stream.at_least(stream.topics.dead_letter, 5)
            new_ids = await stream.send(3)
            await until(lambda: len(outage.accepted) == 3)
    assert [texts(letter)["ce_id"] for letter in letters] == ids
    assert {texts(letter)[REASON] for letter in letters} == {"expired"}
    assert outage.accepted == Counter(new_ids)


async def test_what_others_parked_is_not_resumed_with_it(stream: EgestStream) -> None:
    outage, other_outage = Outage(), Outage()
    outage.over = other_outage.over = True
    async with destination(outage.reply) as receiver, destination(other_outage.reply) as other_receiver:
        parked_change = StateChange(DestinationState.PARKED, "operator", "test", now_us())
        record = state_record(DestinationName("orders", "d"), parked_change)
        await stream.producer.send_and_wait(stream.topics.destinations, 0, [record])
        await set_state(stream, DestinationState.PARKED)
        async with (
            retrying(stream),
            running_egest(stream, pipe(receiver.url), pipe(other_receiver.url, "orders")),
        ):
            ids: list[str] = []
            for _ in range(3):
                await stream.send(10, pipe="orders")
                ids += await stream.send(10)
            await stream.at_least(stream.topics.parked, 60)
            await set_state(stream, DestinationState.ACTIVE)
            await until(lambda: len(outage.accepted) == 30)
    assert outage.accepted == Counter(ids)
    assert other_outage.accepted == Counter()


async def keep(stream: EgestStream, retention_ms: int) -> None:
    """Set the retention of the topic `parked`."""
    admin = AIOKafkaAdminClient(bootstrap_servers=stream.kafka)
    await admin.start()
    try:
        retention = ConfigResource(
            ConfigResourceType.TOPIC, stream.topics.parked, {"retention.ms": str(retention_ms)}
        )
        await admin.alter_configs([retention])
    finally:
        await admin.close()


@pytest.mark.parametrize("actor", ["operator", EGEST])
async def test_parked_deliveries_become_dead_letters_before_kafka_deletes_them(
    stream: EgestStream, actor: str
) -> None:
    outage = Outage()
    async with destination(outage.reply) as receiver:
        change = StateChange(DestinationState.PARKED, actor, "test", now_us())
        record = state_record(DestinationName("flights", "d"), change)
        await stream.producer.send_and_wait(stream.topics.destinations, 0, [record])
        await keep(stream, 3_600_000)
        retry = {"local_attempts": 1, "max_attempts": 1000}
        async with (
            retrying(stream, retrier_probe_s=3600),
            running_egest(stream, pipe(receiver.url, retry=retry)),
        ):
            ids = await stream.send(5) + await stream.send(3, partition=1)
            await stream.at_least(stream.topics.parked, 8)
            assert await stream.read(stream.topics.dead_letter) == []
        await keep(stream, 2000)
        async with retrying(stream, retrier_probe_s=3600), running_egest(stream):
            letters = await stream.at_least(stream.topics.dead_letter, 8)
            assert sorted(texts(letter)["ce_id"] for letter in letters) == sorted(ids)
            assert {texts(letter)[REASON] for letter in letters} == {"expired"}
            assert "Kafka keeps it" in texts(letters[0])[DETAIL]
            await keep(stream, 3_600_000)
            await stream.send(2)
            await stream.at_least(stream.topics.parked, 10)
        async with retrying(stream, retrier_probe_s=3600), running_egest(stream):
            outage.over = True
            await set_state(stream, DestinationState.ACTIVE)
            await until(lambda: len(outage.accepted) == 2)
            assert len(await stream.read(stream.topics.dead_letter)) == 8, (
                "each once; what is young comes back"
            )
    assert not set(outage.accepted) & set(ids)
