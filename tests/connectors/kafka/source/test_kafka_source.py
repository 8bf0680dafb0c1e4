"""Each record of a source topic passes once, whatever is killed, and observe's minutes are balanced."""

import asyncio
import json
import time
import urllib.request
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import ConsumerRecord
from tests.support.collect.collected_stream import CollectedStream, collected_stream, fields, ids_of, until
from tests.support.held_pipes import unreadable_record
from tests.support.observe_principal import VIEWER
from tests.support.stream_process import free_port, readyz

from hifi.pipe.registry import publish

RECORDS = 3000


def has_more_ids(count: int, records: list[ConsumerRecord]) -> bool:
    return len(ids_of(records)) > count


def has_records(count: int, records: list[ConsumerRecord]) -> bool:
    return len(records) == count


def ids(records: list[Any]) -> Counter[bytes]:
    """How many events with different places in `raw` each id has."""
    return Counter(
        identifier
        for identifier, _ in {
            (attributes["ce_id"], attributes["hifi_raw"]) for attributes in map(fields, records)
        }
    )


def minutes(port: int) -> list[dict[str, Any]]:
    """The minutes of the pipe that observe has closed."""
    with urllib.request.urlopen(
        urllib.request.Request(
            f"http://127.0.0.1:{port}/api/v1/pipes/orders/minutes?last=60", headers=VIEWER
        ),
        timeout=5,
    ) as answer:
        minutes: list[dict[str, Any]] = json.loads(answer.read())["minutes"]
    return minutes


async def collect_and_kill(stream: CollectedStream) -> None:
    """Read the source with collect killed twice and normalize once, all in the middle of it."""
    topics = stream.topics
    normalize, _ = await stream.start("normalize")
    for share in (1, 2):
        # Only the commits that keep accepted times: the next reader has to go back.
        collect, _ = await stream.start("collect", commit_interval_s=3600)
        await stream.put(range(RECORDS * (share - 1) // 3, RECORDS * share // 3))
        await stream.read(topics.raw, partial(has_more_ids, RECORDS * share // 4))
        await stream.kill(collect)
    await stream.kill(normalize)
    await stream.start("normalize")
    await stream.start("collect")
    await stream.put(range(RECORDS * 2 // 3, RECORDS))


@pytest.mark.more  # faster: test_each_event_of_a_source_passes_once_although_reader_and_normalize_were_killed
async def test_each_record_passes_once_although_collect_and_normalize_are_killed(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream:
        topics, port = stream.topics, free_port()
        await stream.publish(stream.pipe())
        await stream.start("observe", observe_port=port, observe_settle_s=1)
        await collect_and_kill(stream)
        raw = await stream.read(topics.raw, lambda records: len(ids_of(records)) == RECORDS)
        copies = len(raw) - RECORDS
        assert copies > 0, "nothing was read again, so the test shows nothing"
        receipts = await stream.read(topics.receipts, lambda records: ids_in_raw(records) == copies)
        normalized_records = await stream.read(
            topics.normalized, lambda records: len(ids_of(records)) == RECORDS
        )
        assert set(ids(normalized_records).values()) == {1}
        assert {fields(receipt)["hifi_outcome"] for receipt in receipts} == {b"duplicate"}
        assert sorted({orjson.loads(record.value)["n"] for record in normalized_records}) == [*range(RECORDS)]

        stamps: dict[bytes, set[tuple[bytes, bytes]]] = {}
        for stamped in map(fields, raw):
            stamps.setdefault(stamped["ce_id"], set()).add((stamped["hifi_accepted"], stamped["hifi_minute"]))
        assert {len(pairs) for pairs in stamps.values()} == {1}, "a copy has the accepted time of the first"

        async def closed() -> list[dict[str, Any]]:
            return await asyncio.to_thread(minutes, port)

        # enrich does not run, so what has passed normalize stays in flight. observe may read the receipts later.
        counts: tuple[int, ...] = ()
        end_s = time.monotonic() + 200
        while counts != (len(raw), 0, RECORDS):
            assert time.monotonic() < end_s, f"in, lost and in flight: {counts}"
            closed_minutes = await closed()
            counts = tuple(
                sum(minute[name] for minute in closed_minutes) for name in ("in", "lost", "in_flight")
            )
            await asyncio.sleep(0.5)


def ids_in_raw(records: list[Any]) -> int:
    """How many records of `raw` these stand for."""
    return len({(record.partition, fields(record)["hifi_raw"]) for record in records})


async def test_records_become_events_and_what_cannot_be_read_becomes_a_dead_letter(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream:
        topics = stream.topics
        await stream.publish(stream.pipe(type="order", partition_key="customer.id"))
        await stream.start("normalize")
        await stream.start("collect", collect_max_event_bytes=1024)
        send = stream.producer.send_and_wait
        values = {
            b"by the field": b'{"customer": {"id": 7}}',
            b"by the record": b'{"customer": {}}',
            b"bad key": b'{"customer": {"id": [1]}}',
            b"not json": b"{",
            b"no object": b"[1]",
            b"large": b'{"a": "%b"}' % (b"x" * 1024),
            b"k1": None,
            b"\xff": None,
        }
        for key, value in values.items():
            await send(stream.source, value, key=key, partition=1, timestamp_ms=1_700_000_000_123)
        normalized_records = await stream.read(topics.normalized, lambda records: len(records) == 3)
        dead_letters = await stream.read(topics.dead_letter, lambda records: len(records) == 5)
        records_by_offset = {
            int(fields(record)["ce_id"].split(b"/")[-1]): record for record in normalized_records
        }
        first, second, deletion = records_by_offset[0], records_by_offset[1], records_by_offset[6]
        assert (fields(deletion)["ce_type"], deletion.key) == (b"hifi.deleted", b"k1")
        assert orjson.loads(deletion.value) == {"key": "k1", "deleted": True}
        assert (first.key, second.key) == (b"7", b"by the record")
        first_fields = fields(first)
        cluster = first_fields["ce_source"].removeprefix(b"kafka://").split(b"/")[0]
        event_id = b"%b/%b/1/0" % (cluster, stream.source.encode())
        assert (first_fields["ce_id"], first_fields["ce_type"]) == (event_id, b"order")
        assert first_fields["ce_time"] == b"2023-11-14T22:13:20.123Z"
        assert first_fields["content-type"] == b"application/json"
        assert first_fields["hifi_position"].split(b";")[1:] == [
            b"0",
            b"kafka/%b/%b/%b/1"
            % (cluster, stream.source.encode(), first_fields["hifi_position"].split(b"/")[3]),
        ]
        assert first.value == values[b"by the field"]
        refusals = {
            int(letter["ce_id"].split(b"/")[-1]): (letter["hifi_reason"], letter["hifi_service"])
            for letter in map(fields, dead_letters)
        }
        reasons = (b"partition-key", b"not-json", b"not-json", b"too-large", b"no-data")
        offsets = (2, 3, 4, 5, 7)
        assert refusals == {
            offset: (reason, b"normalize") for offset, reason in zip(offsets, reasons, strict=True)
        }


async def test_a_source_is_read_while_a_pipe_declares_it(kafka: str, log: Path) -> None:
    async with collected_stream(kafka, log) as stream:
        process, _ = await stream.start("collect")
        await stream.put(range(10))
        assert await stream.all(stream.topics.raw) == []
        await stream.publish(stream.pipe())
        await stream.read(stream.topics.raw, lambda records: len(records) == 10)
        await stream.delete("orders")
        await until(lambda: b"source-ended" in log.read_bytes())
        await stream.put(range(10, 20))
        await stream.publish(stream.pipe(type="again"))
        raw = await stream.read(stream.topics.raw, lambda raw: len(raw) >= 20)
        assert len(raw) == 20, "it goes on where it was"
        process.terminate()
        assert await asyncio.to_thread(process.wait, 60) == 0


async def test_a_cluster_that_is_away_is_a_warning_and_holds_no_other_source_up(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream:
        await stream.publish(stream.pipe(bootstrap="127.0.0.1:1"))
        _, admin = await stream.start("collect")
        await until(lambda: "source of orders: topic" in readyz(admin)[1]["warnings"])
        assert readyz(admin)[0] == 200
        await stream.put(range(5))
        await stream.publish(stream.pipe())
        await stream.read(stream.topics.raw, lambda records: len(records) == 5)
        await until(lambda: readyz(admin)[1]["warnings"] == {})


async def test_a_partition_whose_records_were_lost_is_not_read_from_its_beginning(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream:
        await stream.publish(stream.pipe())
        await stream.put(range(60))
        await stream.commit(1000)  # as after a restart from an old backup
        _, admin = await stream.start("collect")
        await until(
            lambda: any("ends before" in warning for warning in readyz(admin)[1]["warnings"].values())
        )
        assert await stream.all(stream.topics.raw) == []


async def test_the_records_of_a_topic_that_was_created_again_are_new_events(kafka: str, log: Path) -> None:
    async with collected_stream(kafka, log) as stream:
        await stream.publish(stream.pipe())
        await stream.start("normalize")
        for is_recreated, records in ((False, 60), (True, 30)):
            if is_recreated:
                await stream.create_source_again()
            process, _ = await stream.start("collect")
            await stream.put(range(records))
            expected = 60 + records if is_recreated else 60
            await stream.read(stream.topics.normalized, partial(has_records, expected))
            process.terminate()
            assert await asyncio.to_thread(process.wait, 60) == 0
        assert await stream.all(stream.topics.receipts) == []


async def test_a_topic_that_is_created_again_while_it_is_read_begins_at_its_beginning(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream:
        await stream.publish(stream.pipe())
        await stream.start("normalize")
        await stream.start(
            "collect", commit_interval_s=60
        )  # the old position is committed when it has an end
        await stream.put(range(60))
        await stream.read(stream.topics.normalized, partial(has_records, 60))
        await stream.create_source_again()
        await stream.put(range(30))
        await stream.read(stream.topics.normalized, partial(has_records, 90))
        assert await stream.all(stream.topics.receipts) == []


async def test_a_paused_pipe_leaves_its_source_where_it_is_and_reads_on_when_it_is_resumed(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream:
        topics = stream.topics
        await stream.publish(stream.pipe())
        await stream.start("collect")
        await stream.put(range(100))
        await stream.read(topics.raw, lambda records: len(ids_of(records)) == 100)
        await stream.set_paused(paused=True)
        await until(lambda: "source-ended" in log.read_text())
        await stream.put(range(100, 200))
        assert len(await stream.all(topics.raw)) == 100
        await stream.set_paused(paused=False)
        raw = await stream.read(topics.raw, lambda records: len(ids_of(records)) == 200)
        assert len(raw) == 200, "nothing is read again"


async def test_a_held_pipe_leaves_its_source_where_it_is_and_another_one_is_read(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream, collected_stream(kafka, log) as other_stream:
        topics, pipe = stream.topics, stream.pipe()
        second = other_stream.pipe().model_copy(update={"pipe": "second"})
        await stream.publish(pipe)
        await stream.publish(second)
        process, _ = await stream.start("collect")
        await stream.put(range(100))
        await stream.read(topics.raw, lambda records: len(ids_of(records)) == 100)
        await publish(kafka, topics, [unreadable_record(pipe, 2)])
        await until(lambda: "source-ended" in log.read_text())
        await stream.kill(process)  # the next one has never read the pipe, as after a compaction
        await stream.start("collect")
        await stream.put(range(100, 200))
        await other_stream.put(range(10))
        raw = await stream.read(topics.raw, lambda records: len(records) == 110)
        assert sum(fields(record)["hifi_pipe"] == b"second" for record in raw) == 10
        await stream.publish(pipe)
        raw = await stream.read(topics.raw, lambda records: len(records) >= 210)
        assert len(raw) == 210, "nothing is read again"
