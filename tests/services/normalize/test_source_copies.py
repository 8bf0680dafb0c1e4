"""An event that was read from a source again ends as duplicate, whenever normalize was killed."""

import asyncio
from pathlib import Path

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from tests.support.normalize.normalize_harness import Stream, headers, new_stream, normalize, pipe

from hifi.record.record import Record
from hifi.record.source_position import position_header

SOURCE = b"kafka/cluster/orders/3"


def read(stream: Stream, run: int, position: int, **more: bytes) -> Record:
    """An event as a reader of a source writes it."""
    record = stream.event("p", {"position": position})
    header = position_header(b"%016x" % run, position, SOURCE)
    source_headers = [*record.headers[:2], header, *record.headers[2:], *more.items()]
    return Record(record.key, record.value, source_headers)


async def places(stream: Stream, topic: str) -> list[int]:
    """Offsets in `raw` of the events on a topic, each once."""
    return sorted({int(headers(record)["hifi_raw"]) for record in await stream.all(topic)})


async def until_placed(stream: Stream, topic: str, offsets: list[int]) -> None:
    async with asyncio.timeout(60):
        while await places(stream, topic) != offsets:
            await asyncio.sleep(0.1)


async def test_each_event_of_a_source_passes_once_although_reader_and_normalize_were_killed(
    kafka: str, log: Path
) -> None:
    async with new_stream(kafka, pipe("p")) as stream:
        topics = stream.topics
        async with normalize(stream, log) as instance:
            await stream.put(1, *(read(stream, 1, position) for position in range(2000)))
            await stream.read(topics.normalized, 2000)
            instance.process.kill()
            await asyncio.to_thread(instance.process.wait)
        # The reader died, too: what it had not committed follows again, with other identities.
        await stream.put(1, *(read(stream, 2, position) for position in range(500, 2500)))
        async with normalize(stream, log) as instance:
            await until_placed(stream, topics.receipts, [*range(2000, 3500)])
            await until_placed(stream, topics.normalized, [*range(2000), *range(3500, 4000)])
            assert await instance.stop() == 0
        outcomes = [headers(receipt) for receipt in await stream.all(topics.receipts)]
        assert {receipt_headers["hifi_outcome"] for receipt_headers in outcomes} == {b"duplicate"}
        assert not any("hifi_first" in receipt_headers for receipt_headers in outcomes)


async def test_positions_do_not_need_the_window_of_client_retries_nor_the_records_that_they_stand_for(
    kafka: str, log: Path
) -> None:
    async with new_stream(kafka, pipe("p")) as stream:
        topics = stream.topics
        settings = {"normalize_idempotency_window_s": 0}
        async with normalize(stream, log, **settings) as instance:
            await stream.put(2, *(read(stream, 1, position) for position in range(10)))
            await stream.read(topics.normalized, 10)
            assert await instance.stop() == 0
        # Kafka has dropped what was read, as after a week.
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(topics.raw, 2): RecordsToDelete(before_offset=10)})
        finally:
            await admin.close()
        await stream.put(2, read(stream, 2, 8), read(stream, 2, 9), read(stream, 2, 10))
        async with normalize(stream, log, **settings) as instance:
            await until_placed(stream, topics.receipts, [10, 11])
            await until_placed(stream, topics.normalized, [*range(10), 12])
            assert await instance.stop() == 0


async def test_a_replayed_event_of_a_source_passes(kafka: str, log: Path) -> None:
    async with new_stream(kafka, pipe("p")) as stream, normalize(stream, log) as instance:
        first = read(stream, 1, 5)
        await stream.put(
            0, first, read(stream, 1, 6), read(stream, 1, 5, hifi_replay=b"1"), read(stream, 1, 7)
        )
        await until_placed(stream, stream.topics.normalized, [0, 1, 2, 3])
        assert await instance.stop() == 0
        assert await stream.all(stream.topics.receipts) == []
