"""The lag of each member of a consumer group: pure, and as a real Kafka tells it."""

import asyncio
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from hifi.kafka.topics import Topics
from hifi_infra.kafka.group_lag import EndHistory, GroupLag

WITHIN_S = 300


def test_the_lag_is_the_age_of_the_oldest_record_that_is_not_committed() -> None:
    history = EndHistory()
    assert history.lag_s(5) == 0
    for second in range(100):
        history.see(second, 10 * second)
    assert history.lag_s(990) == 0
    assert history.lag_s(980) == 1
    assert history.lag_s(500) == 49
    assert history.lag_s(505) == 49
    assert history.lag_s(0) == 99


def test_a_partition_that_stands_still_is_not_behind() -> None:
    history = EndHistory()
    for second in range(10):
        history.see(second, 7)
    assert history.lag_s(7) == 0
    assert history.lag_s(6) == 9


async def test_the_lag_of_a_member_grows_until_it_commits(kafka: str, topic) -> None:
    name = await topic(2)
    topics = Topics(f"g{uuid.uuid4().hex[:8]}")
    lags = GroupLag(kafka, "test", topics)
    consumer = AIOKafkaConsumer(
        name, bootstrap_servers=kafka, client_id="egest-1", group_id=topics.group("egest"),
        enable_auto_commit=False, auto_offset_reset="earliest",
    )  # fmt: skip
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer, consumer:
        try:
            async with asyncio.timeout(WITHIN_S):
                while (await lags.read("egest")).get("egest-1") is None:
                    await asyncio.sleep(0.1)
                await producer.send_and_wait(name, b"event", partition=0)
                while (await lags.read("egest"))["egest-1"] < 1:
                    await asyncio.sleep(0.1)
                await consumer.getone()
                await consumer.commit()
                while (await lags.read("egest"))["egest-1"]:
                    await asyncio.sleep(0.1)
        finally:
            await lags.stop()
    assert await lags.read("nobody") == {}
    await lags.stop()
