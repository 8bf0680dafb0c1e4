"""The records that are skipped after an interrupted batch: those whose output is in Kafka, without a gap."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from tests.support.enrich.running_instance import LiveStream
from tests.support.enrich.spark_bench import make_headers, make_pipe

from hifi.kafka.topic_reader import read_ranges
from hifi.kafka.topics import Topics
from hifi.record.headers import DESTINATION, REASON, REPLAY, SERVICE, TO, Headers
from hifi.record.record import Record
from hifi_enrich.query import written_records
from hifi_enrich.query.written_records import skip_written

TOPICS = Topics("s")


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


async def test_replays_for_two_destinations_are_skipped_by_their_own_outputs(kafka: str) -> None:
    stream = await LiveStream(kafka).create(make_pipe("p"))
    replays = [(0, Record(b"", b"", replay(0, destination))) for destination in (b"A", b"B")]
    await stream.append(stream.topics.normalized, replays)
    await stream.append(stream.topics.enriched, [(0, Record(b"", b"", replay(0, b"", to=b"A")))])
    assert await skip_written(kafka, "enrich", stream.topics, {0: 0, 1: 0}) == {0: 1, 1: 0}
    assert await skip_written(kafka, "enrich", stream.topics, {0: 1, 1: 0}) == {0: 1, 1: 0}


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


class KeptTopics:
    """A consumer of topics with one partition each, which are kept here."""

    def __init__(self, **headers_by_topic: Sequence[Headers]) -> None:
        self.records = {
            TopicPartition(getattr(TOPICS, topic), 0): [
                SimpleNamespace(
                    topic=getattr(TOPICS, topic),
                    partition=0,
                    offset=offset,
                    timestamp=offset,
                    headers=headers,
                )
                for offset, headers in enumerate(topic_headers)
            ]
            for topic, topic_headers in headers_by_topic.items()
        }
        self.read = 0
        self._positions: dict[TopicPartition, int] = {}

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: len(self.records.get(partition, ())) for partition in partitions}

    async def offsets_for_times(self, times_ms: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        return {
            partition: next((record for record in self.records.get(partition, ())), None)
            for partition in times_ms
        }

    def assign(self, _: Sequence[TopicPartition]) -> None:
        pass

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    async def position(self, partition: TopicPartition) -> int:
        return self._positions[partition]

    async def getmany(self, *partitions: TopicPartition, **_: Any) -> dict[TopicPartition, list[Any]]:
        fetched = {
            partition: self.records[partition][self._positions[partition] :] for partition in partitions
        }
        self.read += sum(map(len, fetched.values()))
        self._positions |= {partition: len(self.records[partition]) for partition in partitions}
        return fetched

    async def skipped(self, start: int) -> int:
        """The offset at which the query starts, if this one is committed."""
        offsets = {0: start}
        await written_records._skip_written(self, TOPICS, offsets)
        return offsets[0]


def replay(number: int, destination: bytes, *, to: bytes | None = None, replays: bytes = b"1") -> Headers:
    """A replay for a destination, or with `to` the record of `enriched` that is made of it."""
    if to is not None:
        return make_headers("p", 0, number, **{TO: to, SERVICE: b"egest", REPLAY: replays})
    fields = {SERVICE: b"egest", DESTINATION: destination, REPLAY: replays}
    return make_headers("p", 0, number, **{name: value for name, value in fields.items() if value})


async def test_a_replay_for_one_destination_is_not_taken_for_that_for_another() -> None:
    """Both have the same identity and number, and enrich writes a record of each."""
    inputs = [replay(1, b"A"), replay(1, b"B")]
    assert await KeptTopics(normalized=inputs, enriched=[replay(1, b"", to=b"A")]).skipped(1) == 1
    assert await KeptTopics(normalized=inputs, enriched=[replay(1, b"", to=b"B")]).skipped(1) == 2
    assert await KeptTopics(normalized=inputs, enriched=[replay(1, b"", to=b"")]).skipped(1) == 1
    both = [replay(1, b"", to=b"A"), replay(1, b"", to=b"B")]
    assert await KeptTopics(normalized=inputs, enriched=both).skipped(0) == 2
    letter = make_headers(
        "p", 0, 1, **{DESTINATION: b"A", REPLAY: b"1", REASON: b"sql-failed", SERVICE: b"enrich"}
    )
    assert await KeptTopics(normalized=inputs, dead_letter=[letter]).skipped(0) == 1
    assert await KeptTopics(normalized=inputs, dead_letter=[letter]).skipped(1) == 1


async def test_a_replay_for_all_destinations_is_skipped_once_for_each_output() -> None:
    inputs = [replay(1, b""), replay(1, b"")]
    assert await KeptTopics(normalized=inputs, enriched=[replay(1, b"", to=b"A,B")]).skipped(0) == 1
    assert await KeptTopics(normalized=inputs, enriched=[replay(1, b"", to=b"A,B")] * 2).skipped(0) == 2
    other_replay = [replay(1, b"", to=b"A,B", replays=b"2")]
    assert await KeptTopics(normalized=inputs, enriched=other_replay).skipped(0) == 0


@pytest.mark.parametrize("replayed", [False, True])
async def test_more_outputs_than_are_read_at_once_are_all_found(
    monkeypatch: pytest.MonkeyPatch, *, replayed: bool
) -> None:
    """A real-time batch may have written any number of records since the last commit."""
    monkeypatch.setattr(written_records, "_OUTPUTS_PER_ROUND", 3)
    inputs = [make_headers("p", 0, number) for number in range(20)]
    if replayed:
        inputs[4] = replay(4, b"A")
    outputs = [*inputs[:4], replay(4, b"", to=b"A") if replayed else inputs[4], *inputs[5:17]]
    assert await KeptTopics(normalized=inputs, enriched=outputs).skipped(4) == 17


async def test_the_dead_letters_of_other_services_are_not_all_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A destination that is down makes more of them in a moment than can be read in time."""
    monkeypatch.setattr(written_records, "_OUTPUTS_PER_ROUND", 3)
    inputs = [make_headers("p", 0, number) for number in range(1_000)]
    refusal = {REASON: b"rejected", SERVICE: b"egest"}
    letters = [make_headers("p", 0, number, **refusal) for number in range(900)]
    kept_topics = KeptTopics(normalized=inputs, enriched=inputs[3:4], dead_letter=letters)
    ranges: list[tuple[TopicPartition, range]] = []

    def recorded(consumer: Any, partition_ranges: dict[TopicPartition, range]) -> Any:
        ranges.extend(partition_ranges.items())
        return read_ranges(consumer, partition_ranges)

    monkeypatch.setattr(written_records, "read_ranges", recorded)
    assert await kept_topics.skipped(2) == 2
    assert [len(offsets) for partition, offsets in ranges if partition.topic == TOPICS.dead_letter] == [3]


async def test_without_output_of_the_records_only_the_newest_outputs_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a query that lags far behind starts at once after an orderly stop."""
    monkeypatch.setattr(written_records, "_OUTPUTS_PER_ROUND", 3)
    inputs = [make_headers("p", 0, number) for number in range(1_000)]
    kept_topics = KeptTopics(normalized=inputs, enriched=inputs[:500])
    ranges: list[range] = []

    def recorded(consumer: Any, partition_ranges: dict[TopicPartition, range]) -> Any:
        ranges.extend(partition_ranges.values())
        return read_ranges(consumer, partition_ranges)

    monkeypatch.setattr(written_records, "read_ranges", recorded)
    assert await kept_topics.skipped(500) == 500
    assert max(map(len, ranges)) == 3
    assert sum(map(len, ranges)) <= 10
