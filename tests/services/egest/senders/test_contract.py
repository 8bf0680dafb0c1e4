"""What every kind of destinations promises: order, retries, dead letters, once, back-pressure."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from contract import KindUnderTest
from egest_stream import EgestStream, outcomes, pipe_to, running_egest, texts, until
from fake_destination import destination

from hifi import event
from hifi.connectors.installed import read_settings
from hifi.connectors.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.errors import Rejected
from hifi.event import Record, with_fields

LOCAL = {"local_attempts": 1}


class Sqlite:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "events.db"

    def declared(self, **more: Any) -> dict[str, Any]:
        settings = {"database": str(self.file), "table": "events"}
        return {"name": "d", "kind": "sqlite", "settings": settings, "timeout": "30s", **more}

    async def rows(self) -> dict[str, Any]:
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            found = connection.execute("SELECT key, data FROM events").fetchall()
        return {key: orjson.loads(data) for key, data in found}

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield
            connection.execute("ROLLBACK")


@pytest.fixture
def kind(sqlite_kind: Path, tmp_path: Path) -> KindUnderTest:
    return Sqlite(tmp_path)


def writer(kind: KindUnderTest) -> DestinationWriter:
    (declared,) = pipe_to("flights", kind.declared()).destinations
    found, settings = read_settings(declared)
    return found.open(settings, WriterContext("flights", "d", 16))


def outbound(key: str, offset: int, data: Any) -> OutboundEvent:
    body = data if isinstance(data, bytes) else orjson.dumps(data)
    return OutboundEvent(body, "application/json", {"id": str(offset)}, key.encode(), 0, offset)


async def test_each_event_is_written_and_has_its_receipt_and_the_newest_of_a_key_is_last(
    kind: KindUnderTest, stream: EgestStream
) -> None:
    async with running_egest(stream, pipe_to("flights", kind.declared(batch={"size": 20, "wait": "20ms"}))):
        records = [stream.record(key=f"k{number % 7}", data={"number": number}) for number in range(200)]
        await stream.enriched(*records)
        receipts = await stream.receipts(200)
    assert outcomes(receipts) == ["delivered"] * 200
    assert {receipt[event.STATUS] for receipt in receipts} == {"200"}
    assert {at.offset for at in (await stream.committed()).values()} == {200}
    newest = {f"k{number % 7}": {"number": number} for number in range(200)}
    assert await kind.rows() == newest


async def test_events_that_are_rejected_become_dead_letters_and_the_others_of_the_batch_are_written(
    kind: KindUnderTest, stream: EgestStream
) -> None:
    async with running_egest(stream, pipe_to("flights", kind.declared(batch={"size": 50, "wait": "200ms"}))):
        poison = {11, 12, 40}
        records = [
            stream.record(key=f"k{number}", data=b"{" if number in poison else {"number": number})
            for number in range(60)
        ]
        await stream.enriched(*records)
        receipts = await stream.receipts(60)
        letters = await stream.read(stream.topics.dead_letter)
    assert sorted(record.key.decode() for record in letters) == ["k11", "k12", "k40"]
    assert {texts(letter)[event.REASON] for letter in letters} == {"not-json"}
    assert sorted(outcomes(receipts)) == ["dead-letter"] * 3 + ["delivered"] * 57
    assert await kind.rows() == {f"k{n}": {"number": n} for n in range(60) if n not in poison}


async def test_a_retry_that_comes_late_does_not_replace_a_newer_row(
    kind: KindUnderTest, stream: EgestStream
) -> None:
    """The first event waits in a retry tier while the second one of its key is written."""
    declared = pipe_to("flights", kind.declared(timeout="300ms", retry=LOCAL, breaker={"failures": 100}))
    async with running_egest(stream, declared):
        await stream.send(1, key="other")
        await stream.receipts(1)  # the table exists
        async with kind.locked():
            await stream.enriched(stream.record(key="k", data={"number": 1}))
            (waiting,) = await stream.at_least(stream.topics.retry_in(stream.topics.tiers[0]), 1)
        await stream.enriched(stream.record(key="k", data={"number": 2}))
        await until_delivered(stream, 2)
        assert (await kind.rows())["k"] == {"number": 2}
        retry = Record(waiting.key, waiting.value, with_fields(list(waiting.headers), {event.RETRY: b"0:0"}))
        await stream.producer.send_and_wait(stream.topics.retry_out, 0, [retry])
        await until_delivered(stream, 3)
    assert (await kind.rows())["k"] == {"number": 2}


async def until_delivered(stream: EgestStream, count: int) -> None:
    async with asyncio.timeout(60):
        while (found := outcomes(await stream.receipts(count))).count("delivered") < count:
            await asyncio.sleep(0.05)
    assert found.count("delivered") == count


async def test_an_older_event_changes_nothing_and_the_same_event_is_written_once(kind: KindUnderTest) -> None:
    one = writer(kind)
    await one.write([outbound("k", 5, {"at": 5}), outbound("k", 6, {"at": 6})])
    await one.write([outbound("k", 3, {"at": 3}), outbound("other", 4, {"at": 4})])
    await one.write([outbound("k", 6, {"at": 6})])
    assert await kind.rows() == {"k": {"at": 6}, "other": {"at": 4}}
    await one.close()


async def test_a_batch_with_an_event_that_is_rejected_writes_nothing(kind: KindUnderTest) -> None:
    one = writer(kind)
    await one.write([outbound("k", 1, {"at": 1})])
    with pytest.raises(Rejected):
        await one.write([outbound("k", 2, {"at": 2}), outbound("k", 3, b"{")])
    assert await kind.rows() == {"k": {"at": 1}}
    await one.close()


async def test_a_destination_that_is_locked_delays_no_other_destination(
    kind: KindUnderTest, stream: EgestStream
) -> None:
    async with destination() as there:
        http = {"name": "http", "url": there.url}
        declared = pipe_to("flights", kind.declared(timeout="1s", retry=LOCAL), http)
        async with running_egest(stream, declared, egest_lane_events=20):
            await stream.send(1, to="d,http")
            await stream.receipts(2)
            async with kind.locked():
                for sent in range(1, 101, 10):
                    await stream.send(10, to="d,http")
                    await until(lambda sent=sent: len(there.ids) == sent + 10)
            receipts = await stream.receipts(202)
    found = [one[event.OUTCOME] for one in receipts if one[event.DESTINATION] == "d"]
    assert len(found) == 101
    assert set(found) == {"delivered", "retry"}
