"""Dead letters are found by what a person knows of them, and let go once, however often the command is repeated."""

import uuid

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from hifi import event
from hifi.dead.letter import Letter, Wanted, parse_id
from hifi.dead.read import letter, letters
from hifi.dead.replay import replay
from hifi.deadletter import dead_letter
from hifi.errors import Misconfigured, Rejected
from hifi.event import Record
from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.topics import Topics


def alive(number: int, **more: bytes) -> Record:
    headers = [
        ("ce_id", b"e%d" % number),
        (event.PIPE, b"orders"),
        (event.PIPE_VERSION, b"1"),
        (event.SEQ, event.seq_text(7, number)),
        (event.ACCEPTED, b"1700000000000000"),
        (event.MINUTE, b"28333333"),
        *((f"hifi_{name}", value) for name, value in more.items()),
    ]
    return Record(b"k", b'{"n": %d}' % number, headers)


def died(record: Record, node: str, reason: str) -> Record:
    return dead_letter(record.key, record.value, record.headers, node, Rejected(reason, "because", "/n"), 1)


@pytest.fixture
async def topics(kafka: str) -> Topics:
    """A stream with four dead letters: two of normalize, one of enrich, one of egest."""
    topics = Topics(f"d{uuid.uuid4().hex[:8]}")
    await create_topics(kafka, topics, partitions=2, replication=1)
    producer = Producer(kafka, "test")
    await producer.start()
    first = [died(alive(1), "normalize", "schema"), died(alive(2), "enrich", "lookup-miss")]
    sent = alive(4, destination=b"shop", attempt=b"5", **{"pass": b"3"})
    await producer.deliver(topics.dead_letter, 0, first)
    await producer.deliver(
        topics.dead_letter, 1, [died(alive(3), "normalize", "not-json"), died(sent, "egest", "status-400")]
    )
    await producer.stop()
    return topics


async def found(kafka: str, topics: Topics, wanted: Wanted) -> list[Letter]:
    return sorted(
        [one async for one in letters(kafka, topics, wanted)], key=lambda one: (one.partition, one.offset)
    )


async def values(kafka: str, topic: str, partition: int) -> list[tuple[bytes, dict[str, bytes]]]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    tp = TopicPartition(topic, partition)
    try:
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        got: list[tuple[bytes, dict[str, bytes]]] = []
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(timeout_ms=300)).values():
                got += [(record.value, dict(record.headers)) for record in records]
        return got
    finally:
        await consumer.stop()


async def run(kafka: str, topics: Topics, some: list[Letter]) -> list[str]:
    producer = Producer(kafka, "replay")
    await producer.start()
    try:
        return [topic async for _, topic in replay(producer, topics, some)]
    finally:
        await producer.stop()


async def test_they_are_found_by_pipe_destination_reason_and_time(kafka: str, topics: Topics) -> None:
    every = await found(kafka, topics, Wanted())
    assert [one.id for one in every] == ["0:0", "0:1", "1:0", "1:1"]
    assert [one.text("ce_id") for one in await found(kafka, topics, Wanted(reason="schema"))] == ["e1"]
    assert [one.id for one in await found(kafka, topics, Wanted(pipe="orders", destination="shop"))] == [
        "1:1"
    ]
    assert await found(kafka, topics, Wanted(pipe="other")) == []
    last = max(one.dead_ms for one in every)
    assert await found(kafka, topics, Wanted(since_ms=last + 1)) == []
    assert len(await found(kafka, topics, Wanted(until_ms=last + 1))) == 4


async def test_one_is_shown_as_its_node_had_it(kafka: str, topics: Topics) -> None:
    one = await letter(kafka, topics, *parse_id("1:1"))
    assert one.value == b'{"n": 4}'
    summary = one.summary()
    assert (summary["node"], summary["reason"], summary["pointer"], summary["attempts"]) == (
        "egest",
        "status-400",
        "/n",
        5,
    )
    for missing in ("1:9", "7:0"):
        with pytest.raises(Misconfigured, match="there is no dead letter"):
            await letter(kafka, topics, *parse_id(missing))
    with pytest.raises(Misconfigured, match="is not the id"):
        parse_id("seven")


async def test_a_replay_enters_where_it_was_refused_with_its_identity_and_fresh_counts(
    kafka: str, topics: Topics
) -> None:
    await run(kafka, topics, await found(kafka, topics, Wanted()))
    for topic, partition, number in (
        (topics.raw, 0, 1),
        (topics.normalized, 0, 2),
        (topics.raw, 1, 3),
        (topics.retry_out, 1, 4),
    ):
        ((value, headers),) = await values(kafka, topic, partition)
        assert value == b'{"n": %d}' % number
        assert headers[event.SEQ] == event.seq_text(7, number)
        assert headers[event.REPLAY] == b"1"
        assert not headers.keys() & {event.REASON, event.DETAIL, event.POINTER, event.ATTEMPT, event.PASS}
        assert headers.get(event.DESTINATION) == (b"shop" if number == 4 else None)


async def test_a_replay_that_is_repeated_sends_nothing_twice(kafka: str, topics: Topics) -> None:
    some = await found(kafka, topics, Wanted(reason="schema"))
    assert await run(kafka, topics, some) == [topics.raw]
    again = await found(kafka, topics, Wanted(reason="schema"))
    assert [one.replayed for one in again] == [True]
    assert await run(kafka, topics, again) == [""]
    assert len(await values(kafka, topics.raw, 0)) == 1
    assert [one.replayed for one in await found(kafka, topics, Wanted(reason="lookup-miss"))] == [False]


async def test_what_is_no_event_of_hifis_cannot_be_replayed_and_says_so(kafka: str, topics: Topics) -> None:
    producer = Producer(kafka, "test")
    await producer.start()
    await producer.deliver(topics.dead_letter, 0, [died(Record(b"k", b"?", []), "normalize", "not-an-event")])
    await producer.stop()
    with pytest.raises(Rejected, match="missing"):
        await run(kafka, topics, await found(kafka, topics, Wanted(reason="not-an-event")))
