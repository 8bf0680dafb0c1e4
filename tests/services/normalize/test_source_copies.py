"""An event that was read from a source again ends as duplicate, whenever normalize was killed."""

import asyncio
from pathlib import Path

import orjson
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from tests.services.normalize.test_client_retries import metric
from tests.support.normalize.normalize_harness import Stream, headers, new_stream, normalize, pipe

from hifi.record.record import Record
from hifi.record.source_position import position_header

SOURCE = b"kafka/cluster/orders/3"


def source_record(stream: Stream, run: int, position: int, **extra_headers: bytes) -> Record:
    """An event as a reader of a source writes it."""
    record = stream.event("p", {"position": position})
    header = position_header(b"%016x" % run, position, SOURCE)
    source_headers = [*record.headers[:2], header, *record.headers[2:], *extra_headers.items()]
    return Record(record.key, record.value, source_headers)


async def raw_offsets(stream: Stream, topic: str) -> list[int]:
    """Offsets in `raw` of the events on a topic, each once."""
    return sorted({int(headers(record)["hifi_raw"]) for record in await stream.all(topic)})


async def until_placed(stream: Stream, topic: str, offsets: list[int]) -> None:
    async with asyncio.timeout(60):
        while await raw_offsets(stream, topic) != offsets:
            await asyncio.sleep(0.1)


async def test_each_event_of_a_source_passes_once_although_reader_and_normalize_were_killed(
    kafka: str, log: Path
) -> None:
    async with new_stream(kafka, pipe("p")) as stream:
        topics = stream.topics
        async with normalize(stream, log) as instance:
            await stream.put(1, *(source_record(stream, 1, position) for position in range(2000)))
            await stream.read(topics.normalized, 2000)
            instance.process.kill()
            await asyncio.to_thread(instance.process.wait)
        # The reader died, too: what it had not committed follows again, with other identities.
        await stream.put(1, *(source_record(stream, 2, position) for position in range(500, 2500)))
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
            await stream.put(2, *(source_record(stream, 1, position) for position in range(10)))
            await stream.read(topics.normalized, 10)
            assert await instance.stop() == 0
        # Kafka has dropped what was read, as after a week.
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(topics.raw, 2): RecordsToDelete(before_offset=10)})
        finally:
            await admin.close()
        await stream.put(
            2, source_record(stream, 2, 8), source_record(stream, 2, 9), source_record(stream, 2, 10)
        )
        async with normalize(stream, log, **settings) as instance:
            await until_placed(stream, topics.receipts, [10, 11])
            await until_placed(stream, topics.normalized, [*range(10), 12])
            assert await instance.stop() == 0


async def test_a_replayed_event_of_a_source_passes(kafka: str, log: Path) -> None:
    async with new_stream(kafka, pipe("p")) as stream, normalize(stream, log) as instance:
        first_record = source_record(stream, 1, 5)
        await stream.put(
            0,
            first_record,
            source_record(stream, 1, 6),
            source_record(stream, 1, 5, hifi_replay=b"1"),
            source_record(stream, 1, 7),
        )
        await until_placed(stream, stream.topics.normalized, [0, 1, 2, 3])
        assert await instance.stop() == 0
        assert await stream.all(stream.topics.receipts) == []


async def test_an_event_of_a_source_whose_id_had_other_data_gets_an_id_of_its_own_that_stays_when_it_is_read_again(
    kafka: str, log: Path
) -> None:
    def cloudevent(run: int, position: int, data: bytes, event_id: bytes = b"chosen") -> Record:
        record = stream.event("p", data)
        header = position_header(b"%016x" % run, position, b"kafka/cluster/orders/topic-id/3")
        event_headers = [(name, event_id if name == "ce_id" else value) for name, value in record.headers]
        return Record(record.key, record.value, [*event_headers[:2], header, *event_headers[2:]])

    async with new_stream(kafka, pipe("p")) as stream:
        topics = stream.topics
        generated = b"cluster/orders/3/9"
        await stream.put(
            1,
            cloudevent(1, 4, b"1"),
            cloudevent(1, 5, b"1"),
            cloudevent(1, 6, b"2"),
            cloudevent(1, 7, b"1"),
            cloudevent(1, 8, b"3", generated),
            cloudevent(1, 9, b"4", generated),
            cloudevent(2, 6, b"2"),  # a reader that has begun again
            cloudevent(2, 7, b"1"),
            cloudevent(2, 10, b"2"),
        )
        async with normalize(stream, log) as instance:
            await until_placed(stream, topics.receipts, [6, 7])
            await until_placed(stream, topics.normalized, [0, 1, 2, 3, 4, 5, 8])
            ids_by_offset = {
                int(attributes["hifi_raw"]): attributes["ce_id"]
                for attributes in map(headers, await stream.all(topics.normalized))
            }
            assert [ids_by_offset[offset] for offset in sorted(ids_by_offset)] == [
                b"chosen",
                b"chosen",
                b"chosen~6.3",
                b"chosen~7.3",
                generated,
                generated,
                b"chosen~10.3",
            ]
            assert metric(instance, "hifi_normalize_reused_ids_total") == 3
            assert metric(instance, "hifi_normalize_duplicates_total") == 0
            assert await instance.stop() == 0


async def test_restored_positions_count_from_the_first_record_of_a_new_stream(kafka: str, log: Path) -> None:
    async with new_stream(kafka, pipe("p")) as stream:
        topics = stream.topics
        restored = {"highest": 9, "through": -1, "runs": []}
        await stream.producer.send_and_wait(
            topics.source_positions, 2, [Record(b"p;" + SOURCE, orjson.dumps(restored), [])]
        )
        await stream.put(2, *(source_record(stream, 1, position) for position in (8, 9, 10)))
        async with normalize(stream, log) as instance:
            await until_placed(stream, topics.receipts, [0, 1])
            await until_placed(stream, topics.normalized, [2])
            assert await instance.stop() == 0
