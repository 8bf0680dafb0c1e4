"""Promises of every kind of destinations: order, retries, dead letters, once, back-pressure.

The tests of a connector import these and declare the fixture `kind`, and `without_secret` if it needs a secret: the
kind, and its destination without one.
"""

import asyncio
from functools import partial
from typing import Any

import orjson
import pytest
from tests.support.connectors.kind_under_test import KindUnderTest
from tests.support.egest.egest_stream import (
    EgestStream,
    connector_destination,
    outcomes,
    pipe_to,
    running_egest,
    texts,
    until,
)
from tests.support.egest.fake_destination import destination

from hifi.delivery.installed_kinds import read_settings
from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.record.fields import with_fields
from hifi.record.headers import DESTINATION, OUTCOME, REASON, RETRY, STATUS
from hifi.record.record import Record
from hifi.runtime.errors import Rejected

LOCAL = {"local_attempts": 1}
ACCEPTED_US = 1_763_953_200_000_000


def writer(kind: KindUnderTest) -> DestinationWriter:
    destination_kind, settings = read_settings(connector_destination(pipe_to("flights", kind.declared())))
    return destination_kind.open(settings, WriterContext("s", "flights", "d", 16, 10.0))


BLUE, GREEN = "0b" * 16, "0e" * 16
"""Identities of two logs."""


def outbound(
    key: str,
    offset: int,
    number: int | None = None,
    *,
    log: str = BLUE,
    at_s: float = 0,
    is_retried: bool = False,
) -> OutboundEvent:
    """An event whose number is its offset unless another one is given, accepted at `at_s`."""
    body = orjson.dumps({"key": key, "number": offset if number is None else number})
    attributes = {"id": f"{log}/{offset}", "subject": key}
    accepted_us = ACCEPTED_US + int(at_s * 1_000_000)
    return OutboundEvent(
        body, "application/json", attributes, key.encode(), log, 0, offset, accepted_us, is_retried
    )


def numbered(stream: EgestStream, key: str, number: int, to: str = "d") -> Record:
    return stream.record(to, key=key, data={"key": key, "number": number}, ce_subject=key.encode())


async def test_each_event_is_written_in_the_order_of_its_key_and_has_its_receipt(
    kind: KindUnderTest, stream: EgestStream
) -> None:
    async with running_egest(stream, pipe_to("flights", kind.declared(batch={"size": 20, "wait": "20ms"}))):
        records = [numbered(stream, f"k{number % 7}", number) for number in range(200)]
        await stream.enriched(*records)
        receipts = await stream.receipts(200)
    assert outcomes(receipts) == ["delivered"] * 200
    assert {receipt[STATUS] for receipt in receipts} == {"200"}
    assert {position.offset for position in (await stream.committed()).values()} == {200}
    newest = {f"k{number % 7}": number for number in range(200)}
    assert await kind.rows() == newest
    history = await kind.history()
    assert dict(history) == newest
    for key in newest:
        numbers = [number for event_key, number in history if event_key == key]
        assert numbers == sorted(numbers)


async def test_events_that_are_rejected_become_dead_letters_and_the_others_of_the_batch_are_written(
    kind: KindUnderTest, stream: EgestStream
) -> None:
    async with running_egest(stream, pipe_to("flights", kind.declared(batch={"size": 50, "wait": "200ms"}))):
        poison = {11, 12, 40}
        records = [
            stream.record(key=f"k{number}", data=b"{")
            if number in poison
            else numbered(stream, f"k{number}", number)
            for number in range(60)
        ]
        await stream.enriched(*records)
        receipts = await stream.receipts(60)
        letters = await stream.read(stream.topics.dead_letter)
    assert sorted(record.key.decode() for record in letters) == ["k11", "k12", "k40"]
    assert {texts(letter)[REASON] for letter in letters} == {kind.refusal}
    assert sorted(outcomes(receipts)) == ["dead-letter"] * 3 + ["delivered"] * 57
    assert await kind.rows() == {f"k{n}": n for n in range(60) if n not in poison}


async def test_a_retry_that_comes_late_does_not_replace_a_newer_row(
    kind: KindUnderTest, stream: EgestStream
) -> None:
    """The first event waits in a retry tier while the second one of its key is written."""
    declared_pipe = pipe_to("flights", kind.declared(timeout="2s", retry=LOCAL, breaker={"failures": 100}))
    async with running_egest(stream, declared_pipe):
        await stream.enriched(numbered(stream, "other", 0))
        await stream.receipts(1)  # the table exists
        async with kind.locked():
            await stream.enriched(numbered(stream, "k", 1))
            (waiting,) = await stream.at_least(stream.topics.retry_in(stream.topics.tiers[0]), 1)
        await stream.enriched(numbered(stream, "k", 2))
        await until_delivered(stream, 2)
        assert (await kind.rows())["k"] == 2
        retry = Record(waiting.key, waiting.value, with_fields(list(waiting.headers), {RETRY: b"0:0"}))
        await stream.producer.send_and_wait(stream.topics.retry_out, 0, [retry])
        await until_delivered(stream, 3)
    assert (await kind.rows())["k"] == 2


async def until_delivered(stream: EgestStream, count: int) -> None:
    async with asyncio.timeout(60):
        while (delivery_outcomes := outcomes(await stream.receipts(count))).count("delivered") < count:
            await asyncio.sleep(0.05)
    assert delivery_outcomes.count("delivered") == count


async def test_an_older_event_changes_nothing_and_the_same_event_is_written_once(
    kind: KindUnderTest,
) -> None:
    kind_writer = writer(kind)
    await kind_writer.write([outbound("k", 5), outbound("k", 6)])
    await kind_writer.write([outbound("k", 3), outbound("other", 4)])
    await kind_writer.write([outbound("k", 6)])
    assert await kind.rows() == {"k": 6, "other": 4}
    await kind_writer.close()


async def test_events_of_two_logs_with_equal_partitions_and_offsets_are_written_once_each(
    kind: KindUnderTest,
) -> None:
    """As two colours write them, whose writers are opened anew after a kill and repeat what they wrote."""
    blue = [outbound(f"b{offset}", offset, log=BLUE) for offset in range(20)]
    green = [outbound(f"g{offset}", offset, log=GREEN) for offset in range(20)]
    for _ in range(2):
        blue_writer, green_writer = writer(kind), writer(kind)
        for first in range(0, 20, 5):
            await blue_writer.write(blue[first : first + 5])
            await green_writer.write(green[first : first + 5])
        await green_writer.write([event._replace(retried=True) for event in green])
        await blue_writer.write([event._replace(retried=True) for event in blue])
        await green_writer.close()
        await blue_writer.close()
    history = await kind.history()
    assert sorted(history) == sorted([(f"{log}{n}", n) for log in "bg" for n in range(20)])


async def test_of_events_of_a_key_from_two_logs_the_one_that_was_accepted_later_stands(
    kind: KindUnderTest,
) -> None:
    """An older one that arrives after it is refused by name where it would replace it, and by nothing else."""
    kind_writer = writer(kind)
    await kind_writer.write(
        [outbound("k", 50, 1, log=BLUE, at_s=1), outbound("other", 51, 2, log=BLUE, at_s=1)]
    )
    await kind_writer.write([outbound("k", 3, 30, log=GREEN, at_s=2)])
    older = [outbound("k", 52, 20, log=BLUE, at_s=1.5), outbound("new", 53, 4, log=BLUE, at_s=1.6)]
    if kind.upserts:
        with pytest.raises(Rejected) as refusal:
            await kind_writer.write(older)
        assert refusal.value.reason == "superseded"
        assert await kind.rows() == {"k": 30, "other": 2}
        await kind_writer.write(older[1:])
    else:
        await kind_writer.write(older)
    assert await kind.rows() == {"k": 30, "other": 2, "new": 4}
    await kind_writer.write(
        [outbound("k", 54, 40, log=BLUE, at_s=3), outbound("k", 4, 50, log=GREEN, at_s=4)]
    )
    assert (await kind.rows())["k"] == 50
    await kind_writer.close()


async def test_a_batch_with_an_event_that_is_rejected_writes_nothing(kind: KindUnderTest) -> None:
    kind_writer = writer(kind)
    await kind_writer.write([outbound("k", 1)])
    with pytest.raises(Rejected):
        await kind_writer.write(
            [outbound("k", 2), outbound("k", 3)._replace(data=b"{", attributes={"id": "3"})]
        )
    assert await kind.rows() == {"k": 1}
    await kind_writer.close()


async def test_a_destination_that_is_locked_delays_no_other_destination(
    kind: KindUnderTest, stream: EgestStream
) -> None:
    async with destination() as receiver:
        http = {"name": "http", "url": receiver.url}
        batch = {"size": 5, "wait": "20ms"}
        declared_pipe = pipe_to("flights", kind.declared(timeout="1s", retry=LOCAL, batch=batch), http)

        def has_arrived(count: int) -> bool:
            return len(receiver.ids) == count

        async with running_egest(stream, declared_pipe, egest_lane_events=20):
            await stream.enriched(numbered(stream, "k0", 0, to="d,http"))
            await stream.receipts(2)
            async with kind.locked():
                for sent_count in range(1, 101, 10):
                    await stream.enriched(*(numbered(stream, f"k{n}", n, to="d,http") for n in range(10)))
                    await until(partial(has_arrived, sent_count + 10))
                await stream.at_least(stream.topics.retry_in(stream.topics.tiers[0]), 1)
            receipts = await stream.receipts(202)
    kind_outcomes = [receipt[OUTCOME] for receipt in receipts if receipt[DESTINATION] == "d"]
    assert len(kind_outcomes) == 101
    assert {"retry"} <= set(kind_outcomes) <= {"delivered", "retry"}


async def test_while_a_secret_is_missing_deliveries_go_to_the_retrier(
    without_secret: tuple[KindUnderTest, dict[str, Any]], stream: EgestStream
) -> None:
    kind, declared = without_secret
    async with running_egest(stream, pipe_to("flights", declared)) as egest:
        await stream.enriched(numbered(stream, "k", 1))
        [receipt] = await stream.receipts(1)
        warnings = egest.service.health.warnings
    assert (receipt[OUTCOME], receipt[REASON]) == ("retry", "unusable")
    assert any("destination flights/d" in subject for subject in warnings)
    assert await kind.rows() == {}
