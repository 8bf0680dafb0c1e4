"""`hifi query` on a real Kafka: records with their fields, and what is refused."""

import asyncio
import json
import uuid

import pytest
from tests.support.committed import until_readable
from typer.testing import CliRunner

from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics, principal_topics
from hifi.record.fields import packed
from hifi.record.record import Record
from hifi_cli.app import command_line
from hifi_infra.kafka.stream_setup import prepare

EVENTS = 30
ACCEPTED_US = 1764000000123456


def event(number: int) -> Record:
    """An event of `enriched`, as Kafka has it."""
    headers = packed(
        {
            "hifi_pipe": b"orders",
            "hifi_revision": b"1",
            "hifi_revision_offset": b"0",
            "hifi_accepted": b"%d" % (ACCEPTED_US + number),
            "hifi_minute": b"29400002",
            "hifi_seq": b"00000000000000ab:%d" % number,
            "hifi_in": b"1764000000000001",
            "hifi_to": b"crm,warehouse",
            "ce_id": b"id-%d" % number,
        }
    )
    value = b"\xff" if number == 0 else b'{"total": %d.50, "note": "\xc3\xa9\\u001b"}' % number
    return Record(b"k%d" % (number % 3), value, headers)


@pytest.fixture
def options(kafka: str) -> list[str]:
    """Of a stream with events."""
    topics = Topics(f"s{uuid.uuid4().hex[:8]}")

    async def write() -> None:
        await prepare(kafka, topics, 2, principal_topics(topics.stream))
        producer = Producer(kafka, "test")
        await producer.start()
        for partition in range(2):
            records = [event(number) for number in range(EVENTS) if number % 2 == partition]
            await producer.send_and_wait(topics.enriched, partition, records)
        await producer.stop()
        await until_readable(kafka, topics.enriched)

    asyncio.run(write())
    return ["--kafka", kafka, "--stream", topics.stream]


def run(options: list[str], *arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(command_line(), ["query", *arguments, *options])
    assert result.exit_code == status, result.output
    return result.stdout if not status else result.output


def test_records_have_their_fields_and_data(options: list[str]) -> None:
    sql = (
        'select pipe, event, accepted, accepted_us, partition, "offset" place, key, size_bytes, '
        "headers ->> '$.ce_id' id, headers ->> '$.hifi_to' to_names, value ->> '$.total' total, value, "
        "appended_us - accepted_us > 0 later from enriched order by accepted_us"
    )
    rows = json.loads(run(options, sql, "--json"))
    assert len(rows) == EVENTS
    assert (rows[0]["value"], rows[0]["total"], rows[0]["size_bytes"]) == (None, None, 1)
    assert rows[7] == {
        "pipe": "orders",
        "event": "00000000000000ab:7",
        "accepted": "2025-11-24T16:00:00.123463Z",
        "accepted_us": ACCEPTED_US + 7,
        "partition": 1,
        "place": 3,
        "key": "k1",
        "size_bytes": len(event(7).value or b""),
        "id": "id-7",
        "to_names": "crm,warehouse",
        "total": 7.5,
        "value": '{"total": 7.50, "note": "é\\u001b"}',
        "later": 1,
    }


def test_a_table_for_people_says_that_there_are_more_rows(options: list[str]) -> None:
    output = run(
        options, "select key, count(*) events from enriched group by key order by key", "--rows", "2"
    )
    assert [line.split() for line in output.splitlines()][:3] == [
        ["key", "events"],
        ["k0", "10"],
        ["k1", "10"],
    ]
    assert "k2" not in output
    assert "no rows" in run(options, "select * from receipts")
    assert "no rows" in run(options, "select * from retry_in join dead_letter using (event)")
    refusal = run(options, "select key, key from enriched", "--json", status=1)
    assert "two columns have one name" in " ".join(refusal.split())


def test_too_many_records_or_none_of_the_time_are_told(options: list[str]) -> None:
    text = run(options, "select 1 from enriched", "--records", "10", status=1)
    assert f"{EVENTS} records are more than 10" in " ".join(text.split())
    assert "no rows" in run(options, "select 1 from enriched", "--since", "2999-01-01T00:00:00Z")
    assert "is not a point in time" in run(options, "select 1 from enriched", "--since", "soon", status=1)
    absent_stream = ["--kafka", options[1], "--stream", "absent"]
    assert "has no topic absent.receipts" in " ".join(
        run(absent_stream, "select 1 from receipts", status=1).split()
    )
