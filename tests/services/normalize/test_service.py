"""normalize as a process on a real Kafka."""

import asyncio
from collections import Counter
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from tests.support.kafka.raw_batches import batch_of, send_batch
from tests.support.normalize.normalize_harness import headers, ids, new_stream, normalize, pipe
from tests.support.stream_process import PARTITIONS

from hifi.kafka.topics import MAX_RECORD_BYTES
from hifi.record.fields import fields
from hifi.record.record import Record

SCHEMA = {"properties": {"n": {"type": "integer"}}}
HOP = ("hifi_hop", b"1800000000000001")
FUNCTIONS = "def fail(data): raise KeyError(data)\n"


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "test_functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("HIFI_PIPES_FUNCTION_FOLDERS", str(tmp_path))
    return "test_functions"


async def test_events_go_on_with_their_headers_partition_and_order_and_bad_ones_to_the_dead_letters(
    kafka: str, log: Path, functions: str
) -> None:
    pipes = [
        pipe("plain"),
        pipe("checked", schema=SCHEMA, fields={"m": {"from": "n", "cast": "string"}}, mask={"ssn": "drop"}),
        pipe("failing", function=f"{functions}:fail"),
        pipe("gone"),
    ]
    async with new_stream(kafka, *pipes) as stream:
        await stream.delete("gone")
        valid_event = stream.event("checked", {"n": 1, "ssn": "x"})
        invalid_events = [
            (stream.event("checked", {"n": "one"}), "schema", b"/n"),
            (stream.event("checked", b"{"), "not-json", None),
            (stream.event("failing", {}), "function-failed", None),
            (stream.event("gone", {}), "pipe-deleted", None),
            (Record(b"k", b"v", [("x", b"y"), ("ce_id", b"0")]), "not-an-event", None),
            (Record(None, None, [("hifi", b"2;plain;1"), HOP, ("ce_id", b"0")]), "not-an-event", None),
            (Record(None, b"{}", [*valid_event.headers[:1], *valid_event.headers[2:]]), "not-an-event", None),
            (
                Record(None, b"{}", [("hifi", b"1" + valid_event.headers[0][1][1:]), HOP]),
                "not-an-event",
                None,
            ),
            (
                Record(None, b"[]", [("hifi", valid_event.headers[0][1] + b";;batch"), HOP]),
                "not-an-event",
                None,
            ),
        ]
        later_events = [
            stream.event("plain", b"\xff not json"),
            *(stream.event("plain", {"n": n}) for n in range(600)),
        ]
        await stream.put(2, valid_event, *(record for record, _, _ in invalid_events), *later_events)
        await stream.put(3, stream.event("plain", {}))
        async with normalize(stream, log) as instance:
            passed_records = await stream.read(stream.topics.normalized, 2 + len(later_events))
            dead_letters = await stream.read(stream.topics.dead_letter, len(invalid_events))
            assert await instance.stop() == 0

    assert [record.partition for record in passed_records] == [2] * (1 + len(later_events)) + [3]
    assert passed_records[0].value == b'{"n":1,"m":"1"}'
    assert [record.value for record in passed_records[1:-1]] == [record.value for record in later_events]
    for record, event in zip(passed_records, [valid_event, *later_events], strict=False):
        record_headers = headers(record)
        assert record.key == event.key
        assert (record.headers[0], list(record.headers[2:])) == (event.headers[0], event.headers[2:])
        assert {name: record_headers[name] for name in fields(event.headers) if name != "hifi_in"} == {
            name: value for name, value in fields(event.headers).items() if name != "hifi_in"
        }
        assert int(record_headers["hifi_in"]) <= record.timestamp * 1000 + 1000
        assert int(record_headers["hifi_in"]) != 1800000000000001
    assert [int(headers(record)["hifi_raw"]) for record in passed_records[:-1]] == [
        0,
        *range(1 + len(invalid_events), 1 + len(invalid_events) + len(later_events)),
    ]

    assert {record.partition for record in dead_letters} == {2}
    for record, (event, reason, pointer) in zip(dead_letters, invalid_events, strict=True):
        record_headers = headers(record)
        assert (record.key, record.value) == (event.key, event.value)
        assert (
            record_headers["hifi_reason"],
            record_headers.get("hifi_pointer"),
            record_headers["hifi_service"],
        ) == (
            reason.encode(),
            pointer,
            b"normalize",
        )
        assert b'"one"' not in record_headers["hifi_detail"]
        assert set(event.headers) - {HOP} <= set(record.headers)


async def test_a_record_that_kafka_takes_and_hifi_does_not_costs_itself_alone(kafka: str, log: Path) -> None:
    async with new_stream(kafka, pipe("plain")) as stream:
        good = stream.event("plain", {})
        large = b"x" * (MAX_RECORD_BYTES - 2000)
        foreign_headers = [
            [(name, None if name == without else value) for name, value in [*good.headers, ("x", b"y")]]
            for without in ("hifi", "hifi_hop", "ce_id", "x")
        ]
        bad_batch = batch_of(
            [b"{}"], header="HEADER", change=lambda raw: raw.replace(b"HEADER", b"H\xe4\xf6\xfcER")
        )
        await stream.put(2, stream.event("plain", {}))
        producer = AIOKafkaProducer(bootstrap_servers=kafka, max_request_size=2 * MAX_RECORD_BYTES)
        await producer.start()
        for headers_of_record in foreign_headers:
            await producer.send_and_wait(
                stream.topics.raw, b"{}", b"k", partition=2, headers=headers_of_record
            )
        await send_batch(producer, stream.topics.raw, bad_batch, partition=2)
        await producer.send_and_wait(stream.topics.raw, large, b"k", partition=2, headers=good.headers)
        await producer.stop()
        await stream.put(2, stream.event("plain", {}))
        async with normalize(stream, log) as instance:
            passed_records = await stream.read(stream.topics.normalized, 2)
            dead_letters = await stream.read(stream.topics.dead_letter, 6)
            assert await instance.stop() == 0

    assert [int(headers(record)["hifi_raw"]) for record in passed_records] == [0, 7]
    assert [headers(record)["hifi_reason"] for record in dead_letters] == [b"not-an-event"] * 5 + [
        b"too-large"
    ]
    details = [headers(record)["hifi_detail"].decode() for record in dead_letters]
    for name, detail in zip(("hifi", "hifi_hop", "ce_id", "x"), details, strict=False):
        assert f"the header {name} has no value" in detail
    assert f"offset 5 of {stream.topics.raw}[2] has a header whose name is not UTF-8" in details[4]
    assert "offset 6 of the topic raw" in details[5]
    assert [record.value for record in dead_letters] == [b"{}"] * 5 + [None]


async def test_a_changed_pipe_takes_effect_a_broken_one_does_not_and_no_event_is_lost(
    kafka: str, log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret, schema = tmp_path / "secret", tmp_path / "schema.json"
    secret.write_text("now it is here\n")
    broken_pipe = pipe("changing", schema=str(schema), mask={"a": {"hash": {"file": str(secret)}}})
    async with (
        new_stream(
            kafka, pipe("changing"), pipe("other"), broken_pipe.model_copy(update={"pipe": "never"})
        ) as stream,
        normalize(stream, log, normalize_broken_retry_s=0.3) as instance,
    ):
        body = await instance.until(200, ["pipe never"])
        assert str(schema) in body["warnings"]["pipe never"]
        await stream.put(0, stream.event("changing", {"a": 1}))
        await stream.read(stream.topics.normalized, 1)

        await stream.publish(pipe("changing", mask={"a": "redact"}))
        await stream.put(0, stream.event("changing", {"a": 2}))
        await stream.read(stream.topics.normalized, 2)

        await stream.publish(broken_pipe)
        await stream.put(
            0,
            stream.event("changing", {"a": 3}),
            stream.event("other", {"a": 4}),
            stream.event("never", {"a": 5}),
        )
        await stream.read(stream.topics.normalized, 4)
        body = await instance.until(200, ["pipe changing"])
        assert "stays in use" in body["warnings"]["pipe changing"]
        (dead_letter,) = await stream.read(stream.topics.dead_letter, 1)

        schema.write_text("{}")  # services read no files of schemas
        corrected_pipe = pipe("changing", schema={}, mask={"a": {"hash": {"file": str(secret)}}})
        await stream.publish(corrected_pipe, corrected_pipe.model_copy(update={"pipe": "never"}))
        async with asyncio.timeout(60):
            while instance.readyz()[1]["warnings"]:
                await asyncio.sleep(0.05)
        await stream.put(0, stream.event("changing", {"a": 6}), stream.event("never", {"a": 7}))
        passed_records = await stream.read(stream.topics.normalized, 6)
        assert await instance.stop() == 0
    values = [orjson.loads(record.value)["a"] for record in passed_records]
    assert values[:4] == [1, "[redacted]", "[redacted]", 4]
    assert [len(value) for value in values[4:]] == [64, 64]
    assert headers(dead_letter)["hifi_reason"] == b"pipe-broken"
    assert dead_letter.value == b'{"a":5}'


async def test_an_event_of_an_unknown_pipe_version_waits_without_blocking_other_partitions(
    kafka: str, log: Path
) -> None:
    async with new_stream(kafka, pipe("p")) as stream:
        early_event = stream.event("p", {"a": 2}, version=stream.version + 1)
        await stream.put(0, stream.event("p", {"a": 1}), early_event, stream.event("p", {"a": 3}))
        async with normalize(stream, log, normalize_pipe_wait_s=0.5) as instance:
            await stream.put(1, stream.event("p", {"a": 4}))
            assert ids(await stream.read(stream.topics.normalized, 2)) == [2, 4]
            body = await instance.until(200, [f"{stream.topics.raw}[0]"])
            assert "waits for offset" in body["warnings"][f"{stream.topics.raw}[0]"]
            await stream.publish(pipe("p", mask={"a": "redact"}))
            passed_records = [
                record for record in await stream.read(stream.topics.normalized, 4) if record.partition == 0
            ]
            await instance.until(200)
            assert instance.readyz()[1]["warnings"] == {}
            assert await instance.stop() == 0
    assert [orjson.loads(record.value)["a"] for record in passed_records] == [1, "[redacted]", "[redacted]"]


async def test_stopping_while_a_partition_waits_for_a_version_is_quick_and_loses_nothing(
    kafka: str, log: Path
) -> None:
    async with new_stream(kafka, pipe("p")) as stream:
        await stream.put(
            0, stream.event("p", {"a": 1}), stream.event("p", {"a": 2}, version=stream.version + 1)
        )
        async with normalize(stream, log) as instance:
            await stream.read(stream.topics.normalized, 1)
            assert await instance.stop() == 0
        await stream.publish(pipe("p"))
        async with normalize(stream, log) as instance:
            passed_records = await stream.read(stream.topics.normalized, 2)
            assert await instance.stop() == 0
    assert [orjson.loads(record.value)["a"] for record in passed_records] == [1, 2]


async def test_every_event_arrives_in_order_through_restarts_and_kills_and_clean_stops_write_no_copies(
    kafka: str, log: Path
) -> None:
    async with new_stream(kafka, pipe("p", mask={"x": "drop"})) as stream:
        normalized, total = stream.topics.normalized, 0

        async def put(events_of_partition: int) -> None:
            nonlocal total
            events = [
                [stream.event("p", {"x": 1}) for _ in range(events_of_partition)] for _ in range(PARTITIONS)
            ]
            await asyncio.gather(
                *(stream.put(partition, *events[partition]) for partition in range(PARTITIONS))
            )
            total += events_of_partition * PARTITIONS

        await put(1000)
        for share in (0.1, 0.5):
            async with normalize(stream, log, commit_interval_s=0.2) as instance:
                await put(1000)
                await stream.until(normalized, int(total * share))
                assert await instance.stop() == 0
        copy_counts = Counter(ids(await stream.all(normalized)))
        assert max(copy_counts.values()) == 1, "a clean stop writes no copies"
        written_count = copy_counts.total()
        for _ in range(2):
            async with normalize(stream, log, commit_interval_s=0.02) as instance:
                await put(1500)
                await stream.until(normalized, written_count + 2000)
                instance.process.kill()
                await asyncio.to_thread(instance.process.wait)
            written_count = len(await stream.all(normalized))
        async with normalize(stream, log) as instance:
            async with asyncio.timeout(60):
                while len(set(ids(passed_records := await stream.all(normalized)))) < total:
                    await asyncio.sleep(0.2)
            assert await instance.stop() == 0
        assert await stream.all(stream.topics.dead_letter) == []
    for partition in range(PARTITIONS):
        offsets = [
            int(headers(record)["hifi_raw"]) for record in passed_records if record.partition == partition
        ]
        first_offsets = list(dict.fromkeys(offsets))
        assert first_offsets == list(range(total // PARTITIONS)), (
            "first copies are in order and none is missing"
        )


@pytest.mark.more
async def test_two_processes_share_the_partitions(kafka: str, log: Path, tmp_path: Path) -> None:
    async with (
        new_stream(kafka, pipe("p")) as stream,
        normalize(stream, log) as first_instance,
        normalize(stream, tmp_path / "two") as second_instance,
    ):
        for partition in range(PARTITIONS):
            await stream.put(partition, *(stream.event("p", {}) for _ in range(100)))
        passed_records = await stream.read(stream.topics.normalized, 400)
        assert await first_instance.stop() == 0
        await stream.put(0, *(stream.event("p", {}) for _ in range(100)))
        passed_records = await stream.read(stream.topics.normalized, 500)
        assert await second_instance.stop() == 0
    assert max(Counter(ids(passed_records)).values()) == 1
