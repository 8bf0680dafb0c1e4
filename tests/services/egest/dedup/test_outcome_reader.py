"""Which outcomes of the last owner count for records that are read again."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from hifi.kafka.topics import Topics
from hifi.record.fields import packed
from hifi.record.headers import DESTINATION, SEQ, SOURCE
from hifi.record.identity import seq_text
from hifi_egest.dedup.outcome_reader import SKEW_MS, OutcomeReader, RecordedOutcomes, _ReadRequest

TOPICS = Topics("s")
FIRST_MS = 1_780_000_000_000
"""When the first record that is read again was appended."""


def receipt(offset: int, time_ms: int) -> ConsumerRecord:
    header_fields = {SEQ: seq_text(7, offset), SOURCE: b"enriched:%d" % offset, DESTINATION: b"shop"}
    headers = tuple(packed(header_fields))
    return ConsumerRecord(TOPICS.receipts, 0, offset, time_ms, 1, b"k", None, None, 0, 0, headers)


async def test_receipts_of_a_topic_that_was_made_again_end_no_delivery_of_the_new_one() -> None:
    reader = OutcomeReader("nowhere:1", "test", TOPICS)
    answer: asyncio.Future[RecordedOutcomes] = asyncio.get_running_loop().create_future()
    request = _ReadRequest(b"enriched", 0, 0, FIRST_MS, {}, RecordedOutcomes(), answer, 3)
    reader._add_outcome([request], receipt(0, FIRST_MS - SKEW_MS - 1))
    reader._add_outcome([request], receipt(1, FIRST_MS - SKEW_MS))
    reader._add_outcome([request], receipt(2, FIRST_MS))
    assert [request.outcomes.index.has(offset, b"shop") for offset in range(3)] == [False, True, True]


async def test_an_outcome_that_cannot_be_read_keeps_no_other_from_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = OutcomeReader("nowhere:1", "test", TOPICS)
    answer: asyncio.Future[RecordedOutcomes] = asyncio.get_running_loop().create_future()
    request = _ReadRequest(b"enriched", 0, 0, FIRST_MS, {}, RecordedOutcomes(), answer, 3)
    unreadable: Any = receipt(0, FIRST_MS)
    unreadable.headers = None

    async def ranges(*_: object) -> AsyncIterator[list[ConsumerRecord]]:
        yield [unreadable, receipt(1, FIRST_MS)]

    reader._consumer = SimpleNamespace(unsubscribe=lambda: None)
    monkeypatch.setattr("hifi_egest.dedup.outcome_reader.read_ranges", ranges)
    monkeypatch.setattr(reader, "_start_offsets", AsyncMock(return_value={TopicPartition("t", 0): 0}))
    await reader._read_records([request], {TopicPartition("t", 0): 2})
    assert request.outcomes.index.has(1, b"shop")


async def test_a_fresh_receipt_beyond_the_end_of_its_source_is_of_a_topic_that_was_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the new topic reaches that offset, its delivery must not count as done."""
    reader = OutcomeReader("nowhere:1", "test", TOPICS)
    ends = {TOPICS.enriched: 10, TOPICS.retry_out: 7000, TOPICS.receipts: 4}

    async def ranges(*_: object) -> AsyncIterator[list[ConsumerRecord]]:
        yield [receipt(offset, FIRST_MS) for offset in (8, 9, 10, 5000)]

    async def offsets(tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: ends.get(tp.topic, 0) for tp in tps}

    reader._consumer = SimpleNamespace(end_offsets=offsets, unsubscribe=lambda: None)
    monkeypatch.setattr("hifi_egest.dedup.outcome_reader.read_ranges", ranges)
    first_offsets = {TopicPartition(TOPICS.receipts, 0): 0}
    monkeypatch.setattr(reader, "_start_offsets", AsyncMock(return_value=first_offsets))
    answer: asyncio.Future[RecordedOutcomes] = asyncio.get_running_loop().create_future()
    await reader._serve([_ReadRequest(b"enriched", 0, 9, FIRST_MS, {}, RecordedOutcomes(), answer)])
    outcomes = await answer
    assert [outcomes.index.has(offset, b"shop") for offset in (9, 10, 5000)] == [True, False, False]
    assert outcomes.keys == [seq_text(7, 8)]
