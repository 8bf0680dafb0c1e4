"""The records that are skipped after an interrupted batch: those whose output is in Kafka, without a gap."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from tests.support.enrich.running_instance import LiveStream
from tests.support.enrich.spark_bench import make_headers, make_pipe

from hifi.kafka.topics import Topics
from hifi.record.headers import REASON, REPLAY, SERVICE
from hifi.record.record import Record
from hifi_enrich.query import written_records
from hifi_enrich.query.written_records import skip_written


async def test_a_record_without_output_and_all_after_it_are_not_skipped(kafka: str) -> None:
    """Other services' dead letters, and outputs of later records and of earlier passes, prove nothing."""
    stream = await LiveStream(kafka).create(make_pipe("p"))
    numbers = await stream.send(*[b"{}"] * 12)  # offsets 0 to 5 of both partitions
    replay_headers = make_headers("p", 0, 5, **{REPLAY: b"1"})
    refusal = {REASON: b"sql-failed"}
    await stream.append(
        stream.topics.normalized, [(1, Record(b"", b"", replay_headers)), (0, Record(b"", b"", []))]
    )
    await stream.append(
        stream.topics.enriched,
        [
            (number % 2, Record(b"", b"", make_headers("p", 0, number)))
            for number in numbers
            if number not in (2, 5, 8)
        ],
    )
    dead_letters = [(2, b"enrich"), (5, b"enrich"), (8, b"egest")]
    letters = [
        (number % 2, Record(b"", b"", make_headers("p", 0, number, **refusal, **{SERVICE: service})))
        for number, service in dead_letters
    ]
    await stream.append(stream.topics.dead_letter, letters)
    assert await skip_written(kafka, "enrich", stream.topics, {0: 0, 1: 0}) == {0: 4, 1: 6}
    assert await skip_written(kafka, "enrich", stream.topics, {0: 5, 1: 6}) == {0: 6, 1: 6}
    assert await skip_written(kafka, "enrich", stream.topics, {0: 7, 1: 7}) == {0: 7, 1: 7}


async def _search_that_raises(patch: pytest.MonkeyPatch, error: Exception) -> dict[int, int]:
    @contextlib.asynccontextmanager
    async def topic_consumer(*_: Any) -> AsyncIterator[None]:
        yield

    async def search(*_: Any) -> None:
        raise error

    patch.setattr(written_records, "topic_consumer", topic_consumer)
    patch.setattr(written_records, "_skip_written", search)
    return await skip_written("", "enrich", Topics("s"), {0: 3})


async def test_after_a_record_that_cannot_be_parsed_the_query_starts_at_the_committed_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    assert await _search_that_raises(monkeypatch, error) == {0: 3}
    with pytest.raises(KafkaError):
        await _search_that_raises(monkeypatch, KafkaError())
