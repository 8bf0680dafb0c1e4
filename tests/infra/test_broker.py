"""The broker that tests and meshes run on."""

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


async def test_a_record_goes_in_and_comes_out(kafka: str, topic) -> None:
    name = await topic(3)
    async with AIOKafkaProducer(bootstrap_servers=kafka, acks="all", enable_idempotence=True) as producer:
        sent = await producer.send_and_wait(name, b"hello", partition=2, timestamp_ms=1)
    async with AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(name, 2)])
        record = await consumer.getone()
    assert record.value == b"hello"
    assert record.timestamp_type == 1
    assert record.timestamp > 1_600_000_000_000
    assert sent.partition == 2
