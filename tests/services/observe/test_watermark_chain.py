"""The watermark of a chain of two pipes on a real Kafka, with the real collect in between."""

import asyncio
import secrets
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from tests.support.collect.collected_stream import CollectedStream, collected_stream
from tests.support.observe.api_requests import past_minute, until
from tests.support.observe.stream_double import Stream, added, pipe
from tests.support.observe_principal import create_principals

from hifi.kafka.producer import Producer
from hifi.pipe.model import Pipe
from hifi.record.fields import fields, packed
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_observe.watermark.statement import Watermark, microseconds


def flights(stream: CollectedStream) -> Pipe:
    """The pipe that writes to the topic which the pipe `orders` reads."""
    settings = {"bootstrap": stream.kafka, "topic": stream.source}
    return pipe(destinations=[{"name": "crm", "kind": "kafka", "settings": settings}])


async def deliver(collected: CollectedStream, double_stream: Stream, count: int) -> None:
    """Events of `flights` come to the topic, in a transaction as egest writes it, and get their outcome."""
    producer = AIOKafkaProducer(bootstrap_servers=collected.kafka, transactional_id=secrets.token_hex(4))
    await producer.start()
    try:
        async with producer.transaction():
            for number in range(count):
                await producer.send(collected.source, b'{"n": %d}' % number, partition=number % 2)
    finally:
        await producer.stop()
    await double_stream.events(0, past_minute(), count)


async def settle(collected: CollectedStream, double_stream: Stream, count: int) -> None:
    """The events of `orders` get their outcome, once collect has written `count` of them in all."""

    def orders_records(records: list[Any]) -> list[Any]:
        return [record for record in records if fields(record.headers)["hifi_pipe"] == b"orders"]

    raw = await collected.read(collected.topics.raw, lambda records: len(orders_records(records)) == count)
    for record in orders_records(raw):
        receipt = fields(record.headers) | added(b"%d" % now_us())["receipts"] | {"hifi_destination": b"d"}
        headers = packed({name: receipt[name] for name in receipt if name != "hifi_position"})
        await double_stream.producer.send_and_wait(
            double_stream.topics.receipts, record.partition, [Record(b"k", b"", headers)]
        )


async def statements(url: str, condition: Any) -> dict[str, Watermark]:
    """Pipe to its statement, once all meet the condition."""

    def by_pipe(body: Any) -> dict[str, Watermark]:
        return {row["pipe"]: row for row in body["watermarks"]}

    body = await until(
        url, "/api/v1/watermarks", lambda body: len(by_pipe(body)) == 2 and condition(by_pipe(body))
    )
    return by_pipe(body)


def chain_us(rows: dict[str, Watermark]) -> int:
    chain = rows["orders"]["chain"]
    assert chain is not None
    assert rows["flights"]["chain"] is None
    return microseconds(chain["settled_until"])


def settled_us(rows: dict[str, Watermark]) -> int:
    """Time up to which both pipes are settled, each by itself."""
    return min(microseconds(row["settled_until"]) for row in rows.values())


async def test_a_chain_waits_for_what_its_topic_holds_and_names_it(kafka: str, tmp_path: Path) -> None:
    async with collected_stream(kafka, tmp_path / "log") as collected:
        await collected.publish(flights(collected))
        await collected.publish(collected.pipe())
        await create_principals(kafka, collected.topics.stream)
        producer = Producer(kafka, "double")
        await producer.start()
        double_stream = Stream(kafka, collected.topics, producer)
        try:
            process, _ = await collected.start("collect")
            async with double_stream.observing() as (_, url):
                await deliver(collected, double_stream, 4)
                delivered_us = now_us()
                rows = await statements(
                    url,
                    lambda rows: (
                        microseconds(rows["flights"]["settled_until"]) > delivered_us
                        and rows["orders"]["open"]["in_flight"] == 4
                        and rows["orders"]["chain"]["held_by"] == "orders to d"
                    ),
                )
                assert chain_us(rows) < delivered_us, "orders has not delivered them"
                await settle(collected, double_stream, 4)
                rows = await statements(url, lambda rows: chain_us(rows) > delivered_us)
                chain = rows["orders"]["chain"]
                assert chain is not None
                assert chain["via"] == ["flights/crm"]

                process.terminate()
                await asyncio.to_thread(process.wait, 60)
                before_us = now_us()
                await deliver(collected, double_stream, 2)
                delivered_us = now_us()
                rows = await statements(
                    url,
                    lambda rows: (
                        settled_us(rows) > delivered_us
                        and rows["orders"]["chain"]["held_by"] == f"topic {collected.source}"
                    ),
                )
                assert chain_us(rows) < delivered_us, "collect has not read them"
                assert chain_us(rows) > before_us - 10_000_000
                process, _ = await collected.start("collect")
                await settle(collected, double_stream, 6)
                rows = await statements(url, lambda rows: chain_us(rows) > delivered_us)
                chain = rows["orders"]["chain"]
                assert chain is not None
                assert chain["because"] == []
                process.terminate()
                await asyncio.to_thread(process.wait, 60)
        finally:
            await producer.stop()


async def test_a_topic_that_observe_does_not_read_is_named(kafka: str, tmp_path: Path) -> None:
    async with collected_stream(kafka, tmp_path / "log") as collected:
        other_kafka = {"bootstrap": "127.0.0.1:9", "topic": "legs"}
        flights_pipe = pipe(destinations=[{"name": "crm", "kind": "kafka", "settings": other_kafka}])
        await collected.publish(flights_pipe)
        await collected.publish(collected.pipe(**other_kafka))
        await create_principals(kafka, collected.topics.stream)
        producer = Producer(kafka, "double")
        await producer.start()
        try:
            double_stream = Stream(kafka, collected.topics, producer)
            async with double_stream.observing() as (_, url):
                rows = await statements(
                    url,
                    lambda rows: (
                        rows["orders"]["verdict"] == "current"
                        and rows["orders"]["chain"]["held_by"] == "topic legs"
                        and "another" in rows["orders"]["chain"]["because"][0]
                    ),
                )
                assert rows["orders"]["chain"] == {
                    "settled_until": None,
                    "via": ["flights/crm"],
                    "held_by": "topic legs",
                    "deleted_at": None,
                    "because": [
                        "topic legs: it is on another Kafka (127.0.0.1:9), which observe does not read"
                    ],
                }
        finally:
            await producer.stop()
