"""Dead letters can be found, looked into and let go again; a replay that is repeated sends nothing twice."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from hifi.delivery.dead_letters.letter import DeadLetter, DeadLetterFilter, parse_id
from hifi.delivery.dead_letters.reader import ReplayNotes, letter, letters, replay_note
from hifi.delivery.dead_letters.record import dead_letter
from hifi.delivery.dead_letters.replay import replay, replayed, target
from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer, is_sendable
from hifi.kafka.topics import MAX_RECORD_BYTES, Tier, Topics
from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision
from hifi.record.fields import fields, packed
from hifi.record.headers import (
    ACCEPTED,
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DETAIL,
    IN,
    LEFT_OUT,
    MINUTE,
    PASS,
    PIPE,
    RAW,
    REASON,
    REPLAY,
    REVISION,
    REVISION_OFFSET,
    SEQ,
    SERVICE,
    SOURCE,
    STARTED,
)
from hifi.record.identity import identity, seq_text
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Misconfigured, Rejected

PARTITIONS = 2
FLIGHTS = Pipe.model_validate(
    {
        "pipe": "flights",
        "source": {"keys": [{"env": "KEY"}]},
        "destinations": [{"name": "d", "url": "http://127.0.0.1:9/"}],
    }
)


IDENTITY_FIELDS = {
    PIPE: b"p",
    REVISION: b"1",
    REVISION_OFFSET: b"1",
    ACCEPTED: b"1000000",
    MINUTE: b"1",
    SEQ: seq_text(1, 1),
}


class DeadLetterStream:
    """A stream with dead letters."""

    def __init__(self, kafka: str) -> None:
        self.kafka = kafka
        self.topics = Topics("t" + uuid.uuid4().hex[:10], (Tier("1s", 1),))
        self.producer = Producer(kafka, "test")
        self.count = 0

    async def write(
        self,
        service: str = "egest",
        pipe: str = "flights",
        reason: str = "status-400",
        *,
        partition: int = 0,
        destination: str = "d",
        further: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        headers = packed(
            IDENTITY_FIELDS
            | {
                PIPE: pipe.encode(),
                SEQ: seq_text(7, self.count),
                IN: b"1",
                RAW: b"%d" % self.count,
                "ce_id": b"%d" % self.count,
            }
        )
        if service == "egest":
            headers += [
                (DESTINATION, destination.encode()),
                (PASS, b"3"),
                (ATTEMPT, b"5"),
            ]
            headers += [(STARTED, b"1"), (AMBIGUOUS, b"2"), (SOURCE, b"enriched:5")]
        headers += list(further.items())
        self.count += 1
        rejection = Rejected(reason, "it is so", "/a/b")
        record = dead_letter(b"k", b'{"a":1}', headers, service, rejection, now_us())
        await self.producer.send_and_wait(self.topics.dead_letter, partition, [record])

    async def letters(self, letter_filter: DeadLetterFilter | None = None) -> list[DeadLetter]:
        return [
            stored_letter
            async for stored_letter in letters(self.kafka, self.topics, letter_filter or DeadLetterFilter())
        ]

    async def replay(
        self, letters: list[DeadLetter], current: PipeRevision | None = None
    ) -> list[tuple[str, str]]:
        current = current or PipeRevision(FLIGHTS, offset=1, number=1)
        pipes = {current.pipe.pipe: current}
        return [
            (stored_letter.id, topic)
            async for stored_letter, topic in replay(self.producer, self.topics, letters, pipes)
        ]

    async def read(self, topic: str) -> list[Any]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.kafka, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            consumer.assign(tps)
            end_offsets, stored_records = await consumer.end_offsets(tps), []
            while any([await consumer.position(tp) < end_offsets[tp] for tp in tps]):
                for records in (await consumer.getmany(*tps, timeout_ms=200)).values():
                    stored_records += records
            return stored_records
        finally:
            await consumer.stop()


@pytest.fixture
async def stream(kafka: str) -> AsyncIterator[DeadLetterStream]:
    letter_stream = DeadLetterStream(kafka)
    await create_topics(kafka, letter_stream.topics, partitions=PARTITIONS, replication=1)
    await letter_stream.producer.start()
    yield letter_stream
    await letter_stream.producer.stop()


@pytest.mark.parametrize("name", ["hifi", "hifi_hop", "ce_id", "x"])
def test_a_record_with_a_header_without_a_value_becomes_a_dead_letter_without_it(name: str) -> None:
    """Kafka allows such headers; a letter that cannot be written would stop the partition."""
    headers = [*packed(IDENTITY_FIELDS | {IN: b"1", "ce_id": b"0"}), ("x", b"y")]
    nulled = [(header, None if header == name else value) for header, value in headers]
    record = dead_letter(b"k", b"{}", nulled, "normalize", Rejected("not-an-event", "it is so"), 5)
    assert (record.key, record.value) == (b"k", b"{}")
    written = dict(record.headers)
    assert all(value is not None for value in written.values())
    assert (written[REASON], written[DETAIL]) == (b"not-an-event", b"it is so")
    assert {"hifi", "ce_id", "x"} - {name} <= written.keys()
    assert name not in written or name == "hifi_hop"


@pytest.mark.parametrize("service", ["normalize", "egest"])
@pytest.mark.parametrize(("large", "left_out"), [("value", b"data"), ("key", b"all"), ("header", b"all")])
def test_a_dead_letter_that_would_be_too_large_says_where_its_event_is(
    service: str, large: str, left_out: bytes
) -> None:
    size = MAX_RECORD_BYTES - 66_000
    parts = {name: b"x" * (size if large == name else 1) for name in ("key", "value", "header")}
    values = IDENTITY_FIELDS | {IN: b"1"} | ({} if service == "normalize" else {RAW: b"7"})
    headers = [*packed(values), ("x", parts["header"])]
    rejection, raw = Rejected("schema", "ü" * 600, "/a"), 7 if service == "normalize" else None
    record = dead_letter(parts["key"], parts["value"], headers, service, rejection, 5, raw)
    assert is_sendable(record)
    assert record.value is None
    letter = DeadLetter(3, 0, 0, record.key, record.value, record.headers)
    assert letter.text(LEFT_OUT).encode() == left_out
    assert letter.text(REASON) == "schema"
    assert "offset 7 of the topic raw, same partition" in letter.text(DETAIL)
    assert len(dict(record.headers)[DETAIL]) <= 1000
    assert letter.withheld is (service == "normalize")
    current = PipeRevision(FLIGHTS, offset=1, number=1)
    if service == "normalize" and left_out == b"data":
        assert target(Topics("s"), letter, current) == "s.raw"
        assert LEFT_OUT not in fields(replayed(letter, current, 5).headers)
    else:
        with pytest.raises(Rejected, match="not-replayable"):
            target(Topics("s"), letter, current)


def test_a_dead_letter_that_fits_keeps_its_data() -> None:
    record = dead_letter(
        b"k", b"x" * (MAX_RECORD_BYTES - 70_000), [], "normalize", Rejected("schema", "it"), 5, 7
    )
    assert record.value is not None
    assert LEFT_OUT not in dict(record.headers)


async def test_each_filter_finds_what_it_names(stream: DeadLetterStream) -> None:
    assert await stream.letters() == []
    await stream.write(pipe="a")
    await stream.write(pipe="b", destination="e")
    await stream.write("normalize", pipe="b", reason="schema", partition=1)

    async def ids(**criteria: Any) -> list[str]:
        return [
            stored_letter.text("ce_id")
            for stored_letter in await stream.letters(DeadLetterFilter(**criteria))
        ]

    assert sorted(await ids()) == ["0", "1", "2"]
    assert sorted(await ids(pipe="b")) == ["1", "2"]
    assert await ids(pipe="b", destination="e") == ["1"]
    assert await ids(reason="schema") == ["2"]
    assert await ids(reason="none") == []
    assert await ids(service="normalize") == ["2"]
    summary = (await stream.letters(DeadLetterFilter(reason="schema")))[0].summary()
    assert (summary["id"], summary["service"], summary["detail"], summary["pointer"]) == (
        "1:0",
        "normalize",
        "it is so",
        "/a/b",
    )
    assert summary["replayed"] is False
    assert abs(summary["dead_ms"] - time.time() * 1000) < 60_000


async def test_times_bound_what_is_found(stream: DeadLetterStream) -> None:
    await stream.write()
    (first_letter,) = await stream.letters()
    async with asyncio.timeout(5):
        while time.time() * 1000 <= first_letter.dead_ms + 2:
            await asyncio.sleep(0.001)
    await stream.write()
    later_ms = max(stored_letter.dead_ms for stored_letter in await stream.letters())
    assert later_ms > first_letter.dead_ms
    assert [
        stored_letter.offset for stored_letter in await stream.letters(DeadLetterFilter(since_ms=later_ms))
    ] == [1]
    assert [
        stored_letter.offset for stored_letter in await stream.letters(DeadLetterFilter(until_ms=later_ms))
    ] == [0]
    assert await stream.letters(DeadLetterFilter(since_ms=later_ms + 60_000)) == []


async def test_one_is_shown_as_it_was_stored(stream: DeadLetterStream) -> None:
    await stream.write(partition=1)
    stored_letter = await letter(stream.kafka, stream.topics, *parse_id("1:0"))
    assert stored_letter.value == b'{"a":1}'
    assert stored_letter.text(REASON) == "status-400"
    for missing_id in ["1:1", "0:0", "9:0"]:
        with pytest.raises(Misconfigured):
            await letter(stream.kafka, stream.topics, *parse_id(missing_id))
    with pytest.raises(Misconfigured):
        parse_id("x")


async def test_a_replay_enters_where_it_was_refused_at_the_same_partition(stream: DeadLetterStream) -> None:
    for service in ("egest", "normalize", "enrich"):
        await stream.write(service, partition=1)
    topics = stream.topics
    replayed_letters = await stream.replay(await stream.letters())
    assert [topic for _, topic in replayed_letters] == [topics.retry_out, topics.raw, topics.normalized]
    (record,) = await stream.read(topics.retry_out)
    headers = fields(record.headers)
    assert (record.partition, record.key, record.value) == (1, b"k", b'{"a":1}')
    assert headers[SEQ] == seq_text(7, 0)
    assert headers[REPLAY] == b"1"
    assert headers[DESTINATION] == b"d"
    removed_headers = {
        PASS,
        ATTEMPT,
        STARTED,
        AMBIGUOUS,
        SOURCE,
        REASON,
        DETAIL,
    }
    assert removed_headers.isdisjoint(headers), "the limits begin anew"
    (record,) = await stream.read(topics.normalized)
    assert fields(record.headers)[SERVICE] == b"enrich", (
        "egest tells by it that the old place in raw means nothing"
    )


async def test_a_replayed_event_is_processed_with_the_current_revision(stream: DeadLetterStream) -> None:
    await stream.write("enrich")
    await stream.replay(await stream.letters(), PipeRevision(FLIGHTS, offset=40, number=4))
    [record] = await stream.read(stream.topics.normalized)
    event_identity = identity(record.headers)
    assert (event_identity.pipe, event_identity.revision, event_identity.revision_offset) == (
        "flights",
        4,
        40,
    )
    assert event_identity.seq == seq_text(7, 0)


async def test_what_is_not_declared_any_more_is_refused_with_what_to_declare_and_can_be_replayed_later(
    stream: DeadLetterStream,
) -> None:
    await stream.write("egest", destination="gone")
    await stream.write("retrier", further={DESTINATION: b"gone"})
    for service in ("egest", "enrich", "normalize"):
        await stream.write(service, pipe="deleted")
    dead_letters = await stream.letters()
    for _ in range(2):
        for dead_letter_, message in zip(
            dead_letters,
            [
                *["the destination gone, which the pipe flights does not declare"] * 2,
                *["the pipe deleted, which"] * 3,
            ],
            strict=True,
        ):
            with pytest.raises(Rejected, match=message) as caught:
                await stream.replay([dead_letter_])
            assert "hifi apply DIR" in caught.value.detail
    for topic in (stream.topics.raw, stream.topics.normalized, stream.topics.retry_out):
        assert await stream.read(topic) == []
    assert not any(stored_letter.replayed for stored_letter in await stream.letters())
    redeclared = declared(destinations=[{"name": "gone", "url": "http://127.0.0.1:9/"}])
    assert [topic for _, topic in await stream.replay(dead_letters[:2], redeclared)] == [
        stream.topics.retry_out
    ] * 2


def declared(**changes: Any) -> PipeRevision:
    return PipeRevision(
        Pipe.model_validate(FLIGHTS.model_dump(exclude_defaults=True) | changes), offset=1, number=1
    )


@pytest.mark.parametrize("service", ["egest", "retrier"])
@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ({"enrich": {"derive": {"b": "1"}}}, b'{"a":1,"b":1}', b'{"a":1,"b":1}'),
        ({"when": "a > 1"}, b'{"a":1.50,"b":1}', b'{"a":1.50,"b":1}'),
        ({"when": "a > 1", "enrich": {"derive": {"b": "1"}}}, b'{ "a" : 1.50 ,"b":1}', b'{ "a" : 1.50 }'),
        (
            {"when": "a > 1", "enrich": {"derive": {"b": "1"}}},
            b'{"b":0,"c":{"b":2},"b":1}',
            b'{"b":0,"c":{"b":2}}',
        ),
        (
            {"when": "a > 1", "enrich": {"derive": {"b": "1", "z": "2"}}},
            b'{"a":"}","b":1,"z":{"b":1}}',
            b'{"a":"}"}',
        ),
        ({"when": "a > 1", "enrich": {"derive": {"b": "1"}}}, b'{"b":1,"old": 2}', b'{"old":2}'),
        ({"when": "a > 1", "enrich": {"derive": {"b": "1"}}}, b'{"b":1}', b"{}"),
        ({"when": "a > 1", "enrich": {"derive": {"b": "1"}}}, b'{"a":"\\"b\\":1"}', b'{"a":"\\"b\\":1"}'),
        ({"enrich": {"filter": "a > 1", "derive": {"b": "1"}}}, b'{"a":1,"b":1}', b'{"a":1}'),
        ({"when": "a > 1", "enrich": {"derive": {"b": "1"}}}, b"not json", b"not json"),
        ({"when": "a > 1", "enrich": {"derive": {"b": "1"}}}, None, None),
    ],
)
def test_a_delivery_with_a_condition_goes_back_to_enrich_without_what_it_had_added(
    service: str, condition: dict[str, Any], value: bytes | None, expected: bytes | None
) -> None:
    topics = Topics("s")
    destination = {"name": "d", "url": "http://127.0.0.1:9/"} | {
        name: text for name, text in condition.items() if name == "when"
    }
    current = declared(destinations=[destination], enrich=condition.get("enrich", {}))
    headers = [*packed(IDENTITY_FIELDS | {IN: b"1"}), (DESTINATION, b"d")]
    record = dead_letter(b"k", value, headers, service, Rejected("x", "y"), 0)
    stored_letter = DeadLetter(0, 0, 0, record.key, record.value, record.headers)
    goes_to_enrich = "when" in condition or "filter" in condition.get("enrich", {})
    topic = target(topics, stored_letter, current)
    assert topic == (topics.normalized if goes_to_enrich else topics.retry_out)
    replayed_record = replayed(stored_letter, current, 5, to_enrich=topic == topics.normalized)
    assert replayed_record.value == expected
    assert fields(replayed_record.headers)[DESTINATION] == b"d"
    assert fields(replayed_record.headers)[SERVICE] == service.encode()


@pytest.mark.parametrize("service", ["egest", "retrier", "lake"])
def test_a_delivery_that_lake_makes_now_goes_back_to_enrich(service: str) -> None:
    lake = {"warehouse": "/srv/lake", "table": "a.b", "mode": "append"}
    current = declared(destinations=[{"name": "d", "kind": "iceberg", "settings": lake}])
    headers = [*packed(IDENTITY_FIELDS | {IN: b"1"}), (DESTINATION, b"d")]
    record = dead_letter(b"k", b"{}", headers, service, Rejected("pipe-unreadable", "y"), 0)
    letter = DeadLetter(0, 0, 0, record.key, record.value, record.headers)
    assert not letter.withheld
    assert target(Topics("s"), letter, current) == Topics("s").normalized


async def test_a_letter_of_a_held_pipe_is_not_replayed_before_its_declaration_can_be_read(
    stream: DeadLetterStream,
) -> None:
    await stream.write()
    current = {"flights": PipeRevision(FLIGHTS, offset=1, number=1)}
    replaying = replay(
        stream.producer, stream.topics, await stream.letters(), current, {"flights": "no key x"}
    )
    with pytest.raises(Rejected, match=r"the pipe flights, which is held: no key x\. .* then replay"):
        [topic async for _, topic in replaying]
    assert await stream.read(stream.topics.retry_out) == []


async def test_a_repeated_replay_changes_nothing(stream: DeadLetterStream) -> None:
    for _ in range(250):
        await stream.write()
    first_replay = await stream.replay((await stream.letters())[:120])
    assert len([topic for _, topic in first_replay if topic]) == 120
    second_replay = await stream.replay(await stream.letters())
    assert len([topic for _, topic in second_replay if topic]) == 130
    assert [topic for _, topic in await stream.replay(await stream.letters())] == [""] * 250
    records = await stream.read(stream.topics.retry_out)
    assert [dict(record.headers)["ce_id"] for record in records] == [b"%d" % number for number in range(250)]
    assert all(stored_letter.replayed for stored_letter in await stream.letters())


async def test_what_died_again_is_another_dead_letter_and_replays_again(stream: DeadLetterStream) -> None:
    await stream.write()
    await stream.replay(await stream.letters())
    await stream.write(further={REPLAY: b"1"})
    assert [stored_letter.replayed for stored_letter in await stream.letters()] == [True, False]
    await stream.replay(await stream.letters())
    records = await stream.read(stream.topics.retry_out)
    assert [dict(record.headers)[REPLAY] for record in records] == [b"1", b"2"]


async def test_one_that_cannot_be_replayed_is_told_and_the_others_go(stream: DeadLetterStream) -> None:
    await stream.write()
    garbage = dead_letter(
        None, b"?", [(REPLAY, b"x"), (ATTEMPT, b"y")], "egest", Rejected("no", "no"), now_us()
    )
    await stream.producer.send_and_wait(stream.topics.dead_letter, 0, [garbage])
    await stream.write()
    dead_letters = await stream.letters()
    assert dead_letters[1].summary()["attempts"] == 0
    with pytest.raises(Rejected, match="0:1"):
        await stream.replay(dead_letters)
    assert len(await stream.read(stream.topics.retry_out)) == 2


async def test_a_stream_that_does_not_exist_is_said(kafka: str) -> None:
    with pytest.raises(Misconfigured, match="does not exist"):
        [
            stored_letter
            async for stored_letter in letters(kafka, Topics("no-such-stream"), DeadLetterFilter())
        ]


@pytest.mark.parametrize("service", ["", "ingest", "state"])
def test_a_node_without_an_input_is_not_replayable(service: str) -> None:
    headers = dead_letter(b"k", b"", packed(IDENTITY_FIELDS), service, Rejected("x", "y"), 0).headers
    stored_letter = DeadLetter(0, 0, 0, b"k", b"", headers)
    with pytest.raises(Rejected):
        target(Topics("s"), stored_letter, PipeRevision(FLIGHTS, offset=1, number=1))


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"5",
        b"{}",
        b'{"offsets":5}',
        b'{"offsets":["x"]}',
        b"\xff",
        b'{"offsets":[4],"works":["x"]}',
    ],
)
def test_what_is_no_replay_is_refused(value: bytes | None) -> None:
    notes = ReplayNotes()
    with pytest.raises(ValueError, match=r".+"):
        notes.add(1, value, 0)
    notes.add(1, b'{"offsets":[3,5],"by":"ann"}', 0)
    assert [notes.cover(kept_letter(offset)) for offset in (3, 4, 5)] == [True, False, True]


class SlowProducer:
    """Acknowledges each write when its event is set; notes the writes."""

    bootstrap = "nowhere:1"

    def __init__(self) -> None:
        self.acknowledgements: list[asyncio.Event] = []
        self.written: list[tuple[str, int, list[Record]]] = []

    async def send_and_wait(self, topic: str, partition: int, records: list[Record]) -> None:
        self.written.append((topic, partition, records))
        acknowledged = asyncio.Event()
        self.acknowledgements.append(acknowledged)
        await acknowledged.wait()

    async def nth_write(self, count: int) -> asyncio.Event:
        async with asyncio.timeout(5):
            while len(self.acknowledgements) < count:
                await asyncio.sleep(0)
        return self.acknowledgements[count - 1]


def kept_letter(
    offset: int,
    sequence: int = 1,
    service: str = "egest",
    destination: bytes = b"d",
    replays: int = 0,
    *,
    partition: int = 1,
    dead_ms: int = 0,
) -> DeadLetter:
    identity_fields = IDENTITY_FIELDS | {PIPE: b"flights", SEQ: seq_text(1, sequence), IN: b"1"}
    headers = [*packed(identity_fields), (DESTINATION, destination), (REPLAY, b"%d" % replays)]
    record = dead_letter(b"k", b"{}", headers, service, Rejected("x", "y"), 0)
    return DeadLetter(partition, offset, dead_ms, record.key, record.value, record.headers)


class AcceptingProducer:
    """Acknowledges at once; keeps what is written."""

    bootstrap = "nowhere:1"

    def __init__(self) -> None:
        self.written: list[tuple[str, int, Record]] = []

    async def send_and_wait(self, topic: str, partition: int, records: list[Record]) -> None:
        assert records
        self.written += [(topic, partition, record) for record in records]

    def seqs(self, topic: str) -> list[bytes]:
        return [fields(record.headers)[SEQ] for name, _, record in self.written if name == topic]

    def notes(self, noted_ms: int) -> ReplayNotes:
        notes = ReplayNotes()
        for topic, partition, record in self.written:
            if topic == TWICE.replays:
                notes.add(partition, record.value, noted_ms)
        return notes


TWICE = Topics("s")
TO_D_AND_E = Pipe.model_validate(
    FLIGHTS.model_dump(exclude_defaults=True)
    | {"destinations": [{"name": name, "url": "http://127.0.0.1:9/"} for name in ("d", "e")]}
)


async def went_to(
    producer: AcceptingProducer, dead_letters: list[DeadLetter], works: set[bytes] | None = None
) -> list[tuple[int, str]]:
    double: Any = producer
    pipes = {"flights": PipeRevision(TO_D_AND_E, offset=1, number=1)}
    return [
        (dead_letter_.offset, topic)
        async for dead_letter_, topic in replay(double, TWICE, dead_letters, pipes, {}, works)
    ]


async def test_of_letters_that_were_written_twice_the_first_is_replayed_and_all_are_noted() -> None:
    """As enrich does where a range fails after its letters were written: the halves write them again."""
    producer = AcceptingProducer()
    dead_letters = [kept_letter(offset, offset % 3, "enrich", b"") for offset in range(6)]
    topic = TWICE.normalized
    assert await went_to(producer, dead_letters) == [
        (0, topic),
        (1, topic),
        (2, topic),
        (3, ""),
        (4, ""),
        (5, ""),
    ]
    assert producer.seqs(topic) == [seq_text(1, sequence) for sequence in range(3)]
    later = producer.notes(noted_ms=0)
    assert all(later.cover(dead_letter_) for dead_letter_ in dead_letters)


async def test_letters_that_were_written_twice_are_known_in_all_chunks_of_a_command() -> None:
    producer, works = AcceptingProducer(), set[bytes]()
    for start in (0, 150):
        for offset in range(start, start + 150):
            await went_to(producer, [kept_letter(offset, offset % 150, "enrich", b"")], works)
    assert len(producer.seqs(TWICE.normalized)) == len(works) == 150
    notes = producer.notes(noted_ms=0)
    assert all(notes.cover(kept_letter(offset, 1000)) for offset in range(300)), "each by its offset"


async def test_other_work_of_the_same_event_is_replayed() -> None:
    """Such as its deliveries to several destinations, which may have been in one batch."""
    producer = AcceptingProducer()
    dead_letters = [
        kept_letter(0),
        kept_letter(1, destination=b"e"),
        kept_letter(2, service="retrier"),
        kept_letter(3, replays=1),
        kept_letter(4, sequence=2),
        kept_letter(5, partition=2),
    ]
    assert await went_to(producer, dead_letters) == [(offset, TWICE.retry_out) for offset in range(6)]
    first_noted = AcceptingProducer()
    await went_to(first_noted, dead_letters[:1])
    notes = first_noted.notes(noted_ms=0)
    assert [notes.cover(dead_letter_) for dead_letter_ in dead_letters] == [True] + [False] * 5


async def test_a_letter_that_was_there_when_another_of_the_same_work_was_replayed_is_left_out() -> None:
    """Also if it was not selected; but not one that was written later: the work was refused again."""
    producer = AcceptingProducer()
    await went_to(producer, [kept_letter(7, dead_ms=20)])
    notes = producer.notes(noted_ms=50)
    others = [kept_letter(3, dead_ms=10), kept_letter(9, dead_ms=50), kept_letter(11, dead_ms=51)]
    assert [notes.cover(dead_letter_) for dead_letter_ in others] == [True, True, False]


async def test_a_letter_that_cannot_be_replayed_does_not_keep_another_of_its_work_back() -> None:
    producer = AcceptingProducer()
    too_large = replace(kept_letter(0), value=b"x" * MAX_RECORD_BYTES)
    with pytest.raises(Rejected, match="1:0 is too large"):
        await went_to(producer, [too_large, kept_letter(1)])
    assert len(producer.seqs(TWICE.retry_out)) == 1
    assert not producer.notes(noted_ms=-1).cover(too_large)


def test_a_letter_of_no_event_has_no_work() -> None:
    notes = ReplayNotes()
    notes.add(0, replay_note([kept_letter(0)]), 9)
    assert DeadLetter(0, 7, 0, None, None, [(REPLAY, b"x")]).work is None
    assert not notes.cover(DeadLetter(0, 7, 0, None, None, []))


async def test_a_replay_that_is_cancelled_still_notes_what_it_has_written() -> None:
    topics, producer = Topics("s"), SlowProducer()
    double: Any = producer
    pipes = {"flights": PipeRevision(FLIGHTS, offset=1, number=1)}

    async def replay_all() -> None:
        async for _ in replay(double, topics, [kept_letter(5), kept_letter(6)], pipes):
            pass

    replaying = asyncio.create_task(replay_all())
    acknowledged = await producer.nth_write(1)
    replaying.cancel()
    await asyncio.sleep(0)
    acknowledged.set()
    (await producer.nth_write(2)).set()
    with pytest.raises(asyncio.CancelledError):
        await replaying
    assert [(topic, partition) for topic, partition, _ in producer.written] == [
        (topics.retry_out, 1),
        (topics.replays, 1),
    ]
    notes = ReplayNotes()
    notes.add(1, producer.written[1][2][0].value, 0)
    assert [notes.cover(kept_letter(offset, 1000)) for offset in (4, 5, 6)] == [False, True, True]


async def test_a_replay_that_is_cancelled_ends_though_kafka_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hifi.delivery.dead_letters.replay.NOTE_S", 0)
    producer = SlowProducer()
    double: Any = producer
    pipes = {"flights": PipeRevision(FLIGHTS, offset=1, number=1)}
    replaying = asyncio.ensure_future(anext(replay(double, Topics("s"), [kept_letter(5)], pipes)))
    await producer.nth_write(1)
    replaying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await replaying
    assert len(producer.written) == 1
