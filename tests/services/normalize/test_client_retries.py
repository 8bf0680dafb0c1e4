"""An event that a client sends again ends as duplicate, also after a takeover."""

import asyncio
import urllib.request
from pathlib import Path

from aiokafka import ConsumerRecord
from tests.support.normalize.normalize_harness import (
    Normalize,
    Stream,
    headers,
    ids,
    new_stream,
    normalize,
    pipe,
)

from hifi.record.fields import fields, with_fields
from hifi.record.headers import UNMASKED
from hifi.record.record import Record

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UUID7 = b"0198c0de-0000-7000-8000-000000000000"


def client_event(
    stream: Stream, identifier: bytes, data: object = None, *, name: str = "p", **extra_headers: bytes
) -> Record:
    """An event with an id chosen by its client."""
    record = stream.event(name, {"n": 1} if data is None else data)
    changes: dict[str, bytes | None] = {"ce_id": identifier, "ce_source": b"/shop", **extra_headers}
    return Record(record.key, record.value, with_fields(record.headers, changes))


def ids_with_offsets(records: list[ConsumerRecord]) -> list[tuple[bytes, int]]:
    """Id and offset in `raw` of events."""
    return [(headers(record)["ce_id"], int(headers(record)["hifi_raw"])) for record in records]


def metric(instance: Normalize, name: str) -> float:
    """The value of a metric."""
    with urllib.request.urlopen(f"http://127.0.0.1:{instance.admin}/metrics", timeout=2) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


async def test_a_repeated_event_ends_as_duplicate_and_a_different_one_passes(kafka: str, log: Path) -> None:
    async with new_stream(kafka, pipe("p"), pipe("q"), pipe("strict", schema={"type": "array"})) as stream:
        path = b"/v1/pipes/p/events"
        first_event = client_event(stream, b"a")
        sequences = {
            "first": first_event,
            "again": client_event(stream, b"a", ce_traceparent=TRACE),
            "other data": client_event(stream, b"a", {"n": 2}),
            "other source": client_event(stream, b"a", ce_source=b"/other"),
            "other pipe": client_event(stream, b"a", name="q"),
            "other data again": client_event(stream, b"a", {"n": 2}),
            "first once more": client_event(stream, b"a"),
            "copy of hifi's": first_event,
            "replay": Record(
                first_event.key, first_event.value, [*first_event.headers, ("hifi_replay", b"1")]
            ),
            "made": client_event(stream, UUID7, ce_source=path),
            "made again": client_event(stream, UUID7, ce_source=path),
            "refused": client_event(stream, b"a", name="strict"),
            "refused again": client_event(stream, b"a", name="strict"),
            "other type": client_event(stream, b"a", ce_type=b"order.gone"),
        }
        await stream.put(1, *sequences.values())
        async with normalize(stream, log) as instance:
            passed_records = await stream.read(stream.topics.normalized, 9)
            receipts = await stream.read(stream.topics.receipts, 3)
            dead_letters = await stream.read(stream.topics.dead_letter, 1)
            assert metric(instance, "hifi_normalize_duplicates_total") == 3
            assert metric(instance, "hifi_normalize_reused_ids_total") == 3
            assert await instance.stop() == 0
        assert len(await stream.all(stream.topics.receipts)) == 3
    event_ids = list(sequences)
    assert [event_ids[offset] for _, offset in ids_with_offsets(passed_records)] == [
        "first",
        "other data",
        "other source",
        "other pipe",
        "first once more",
        "replay",
        "made",
        "made again",
        "other type",
    ]
    assert len(dead_letters) == 1
    receivers_ids = {
        event_ids[int(headers(record)["hifi_raw"])]: (headers(record)["ce_id"], headers(record)["ce_source"])
        for record in passed_records
    }
    distinct_names = {"first", "other data", "first once more", "other type"}
    assert len({receivers_ids[name] for name in distinct_names}) == len(distinct_names), (
        "events with one id reach receivers with ids of their own"
    )
    for name in ("other data", "first once more", "other type"):
        assert receivers_ids[name][0] == b"a~" + fields(sequences[name].headers)["hifi_seq"]
    outcomes = [headers(receipt) for receipt in receipts]
    assert [
        (event_ids[int(receipt_headers["hifi_raw"])], event_ids[int(receipt_headers["hifi_first"])])
        for receipt_headers in outcomes
    ] == [
        ("again", "first"),
        ("other data again", "other data"),
        ("refused again", "refused"),
    ]
    for receipt_headers, receipt in zip(outcomes, receipts, strict=True):
        origin = fields(sequences[event_ids[int(receipt_headers["hifi_raw"])]].headers)
        unchanged_names = (
            "hifi_seq",
            "hifi_pipe",
            "hifi_revision",
            "hifi_revision_offset",
            "hifi_accepted",
            "hifi_minute",
        )
        assert {name: receipt_headers[name] for name in unchanged_names} == {
            name: origin[name] for name in unchanged_names
        }
        assert receipt_headers["hifi_outcome"] == b"duplicate"
        assert receipt_headers.get("ce_traceparent") == origin.get("ce_traceparent")
        assert "hifi_destination" not in receipt_headers
        assert (receipt.partition, receipt.value) == (1, None)
        assert [name for name, _ in receipt.headers[:3]] == ["hifi", "hifi_hop", "hifi_receipt"]


async def test_events_that_differ_only_in_what_was_masked_all_pass_and_the_digest_goes_no_further(
    kafka: str, log: Path
) -> None:
    def masked(digest: bytes, value: bytes = b'{"n":1}') -> Record:
        record = client_event(stream, b"a")
        return Record(record.key, value, [*record.headers[:2], (UNMASKED, digest), *record.headers[2:]])

    async with new_stream(kafka, pipe("p", schema={"type": "object"})) as stream:
        events = [masked(b"1"), masked(b"2"), masked(b"2"), masked(b"1"), masked(b"3", b"[]")]
        await stream.put(1, *events)
        async with normalize(stream, log) as instance:
            passed_records = await stream.read(stream.topics.normalized, 3)
            [receipt] = await stream.read(stream.topics.receipts, 1)
            [dead_letter] = await stream.read(stream.topics.dead_letter, 1)
            assert await instance.stop() == 0
    assert [offset for _, offset in ids_with_offsets(passed_records)] == [0, 1, 3]
    assert len({event_id for event_id, _ in ids_with_offsets(passed_records)}) == 3, (
        "receivers get ids of their own"
    )
    assert headers(receipt)["hifi_first"] == b"1"
    assert all(UNMASKED not in dict(record.headers) for record in (*passed_records, dead_letter))
    assert dict(dead_letter.headers)["ce_id"] == b"a~" + fields(events[4].headers)["hifi_seq"], (
        "also if it is refused"
    )


async def test_the_next_owner_of_a_partition_recognizes_events_of_the_previous_one(
    kafka: str, log: Path
) -> None:
    async with new_stream(kafka, pipe("p")) as stream:
        event_ids = [b"m%d" % n for n in range(3000)]
        async with normalize(stream, log) as instance:
            await stream.put(2, *(client_event(stream, event_id) for event_id in event_ids))
            await stream.read(stream.topics.normalized, len(event_ids))
            instance.process.kill()
            await asyncio.to_thread(instance.process.wait)
        written_count = len(await stream.all(stream.topics.normalized))
        async with normalize(stream, log) as instance:
            await stream.put(
                2, *(client_event(stream, event_id) for event_id in event_ids), client_event(stream, b"new")
            )
            receipts = await stream.read(stream.topics.receipts, len(event_ids))
            assert await instance.stop() == 0
        async with normalize(stream, log) as instance:
            await stream.put(
                2,
                *(client_event(stream, event_id) for event_id in event_ids),
                client_event(stream, b"newest"),
            )
            receipts = await stream.read(stream.topics.receipts, 2 * len(event_ids))
            assert await instance.stop() == 0
        passed_records = await stream.all(stream.topics.normalized)
    assert set(dict(ids_with_offsets(passed_records))) == {*event_ids, b"new", b"newest"}
    first_offsets = {offset for _, offset in ids_with_offsets(passed_records)}
    assert first_offsets == {*range(3000), 6000, 9001}, (
        "only first copies pass; what a kill repeats has its old place"
    )
    assert len(passed_records) >= written_count
    assert sorted({int(headers(receipt)["hifi_raw"]) for receipt in receipts}) == [
        *range(3000, 6000),
        *range(6001, 9001),
    ]
    assert [int(headers(receipt)["hifi_first"]) for receipt in receipts] == [*range(3000), *range(3000)]


async def test_after_the_window_the_same_id_is_a_new_event(kafka: str, log: Path) -> None:
    async with (
        new_stream(kafka, pipe("p")) as stream,
        normalize(stream, log, normalize_idempotency_window_s=0.5) as instance,
    ):
        passed_count = 0
        async with asyncio.timeout(30):
            while passed_count < 2:
                await stream.put(0, client_event(stream, b"a"))
                passed_count = len(await stream.all(stream.topics.normalized))
                await asyncio.sleep(0.05)
        records = await stream.all(stream.topics.normalized)
        assert records[1].timestamp - records[0].timestamp >= 400
        assert await instance.stop() == 0


async def test_a_window_shortened_by_the_limit_is_shown_in_readyz_and_metrics(kafka: str, log: Path) -> None:
    async with (
        new_stream(kafka, pipe("p")) as stream,
        normalize(stream, log, normalize_max_fingerprints=1000) as instance,
    ):
        assert metric(instance, "hifi_normalize_idempotency_window_seconds") == 600
        for partition in range(4):
            await stream.put(partition, *(client_event(stream, b"%d" % n) for n in range(900)))
        await stream.read(stream.topics.normalized, 3600)
        body = await instance.until(200, ["client retries"])
        assert "HIFI_NORMALIZE_MAX_FINGERPRINTS" in body["warnings"]["client retries"]
        assert metric(instance, "hifi_normalize_idempotency_window_seconds") < 600
        assert metric(instance, "hifi_normalize_fingerprints") <= 1000
        assert ids(await stream.all(stream.topics.normalized)) != []
        assert await instance.stop() == 0
