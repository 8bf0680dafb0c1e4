"""Replay dead letters: back to the input of the service that refused them, with the same identity.

They meet the pipe as it is now. A delivery whose destination, or pipe, has a condition, or which lake delivers now,
goes back to enrich, which asks it again; the header `hifi_destination` limits the event to that destination. What
enrich had added is taken out before.
A letter whose pipe or destination is not declared any more is refused, as is one of a pipe that is held.

Of letters of the same work (`DeadLetter.work`), which a service may have written again, the first is replayed.

After a replay its offset is noted in the topic `replays`, and a repeated replay leaves out what is noted. A replay that
is cancelled between the two still writes the note. If it is killed there, the event is written twice; egest drops a
copy that comes soon, because the number of the replay is part of the key of its deduplicator. Data and key of a dead
letter that has none, because a mask could not be applied or is not known, are read from `raw`.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from hifi.delivery.dead_letters.letter import DeadLetter
from hifi.delivery.dead_letters.reader import replay_note
from hifi.kafka.clients import topic_consumer
from hifi.kafka.producer import Producer, is_sendable
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.kafka.topics import Topics
from hifi.pipe.reader import reader
from hifi.pipe.registry import HELD_ADVICE
from hifi.pipe.revision import PIPE_UNREADABLE, PipeRevision
from hifi.record.cloudevents.event import InvalidEvent
from hifi.record.cloudevents.json_slices import object_members
from hifi.record.fields import with_fields
from hifi.record.headers import (
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DETAIL,
    DUE,
    IN,
    LEFT_OUT,
    PASS,
    PIPE,
    POINTER,
    RAW,
    REASON,
    REPLAY,
    RETRY,
    SERVICE,
    SOURCE,
    STARTED,
)
from hifi.record.identity import identity, with_revision
from hifi.record.record import Record
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Rejected

CHUNK: Final = 100
"""Dead letters that are written and noted together; far fewer than the keys that egest's deduplicator remembers."""
NOTE_S: Final = 10.0
"""Time in which a replay that is cancelled still waits for Kafka to acknowledge a chunk and its note, seconds."""
_OF_DESTINATION: Final = frozenset({"egest", "retrier", "lake"})
"""Services whose dead letters are of one destination each."""
_NONE_HELD: Final[Mapping[str, str]] = {}
_DROPPED: Final = (REASON, DETAIL, POINTER, LEFT_OUT, PASS, ATTEMPT, STARTED, AMBIGUOUS, DUE, RETRY, SOURCE)

logger = log.get(__name__)


def target(topics: Topics, letter: DeadLetter, current_revision: PipeRevision | None) -> str:
    """The topic that a replay of the dead letter goes to.

    Args:
        topics: of the stream.
        letter: to replay.
        current_revision: the revision of its pipe that is in force; None: the pipe is not declared.

    Raises:
        Rejected: it cannot be replayed, with the reason.
    """
    try:
        identity(letter.headers)
    except Rejected as rejection:
        raise Rejected(
            "not-replayable", f"{letter.id} is not an event that hifi accepted: {rejection.detail}"
        ) from None
    service = letter.text(SERVICE)
    if LEFT_OUT in letter.header_fields and not letter.withheld:
        raise Rejected(
            "not-replayable", f"{letter.id} has no data, which was too large: send the event again, smaller"
        )
    if service in _OF_DESTINATION and DESTINATION not in letter.header_fields:
        raise Rejected("not-replayable", f"{letter.id} names no destination")
    inputs = {
        "normalize": topics.raw,
        "enrich": topics.normalized,
        "egest": topics.retry_out,
        "retrier": topics.retry_out,
        "lake": topics.normalized,
    }
    if service == "lake" and letter.text(REASON) != PIPE_UNREADABLE:
        raise Rejected(
            "not-replayable",
            f"{letter.id} has no key for its table: correct the event at its source and send it again",
        )
    if service == "state":
        raise Rejected(
            "not-replayable",
            f"{letter.id} was not counted by a step; the event itself went on to its destinations: correct it at its "
            "source and send it again",
        )
    if service not in inputs:
        raise Rejected("not-replayable", f"{letter.id} does not say which service refused it")
    if current_revision is None:
        raise Rejected(
            "not-replayable",
            f"{letter.id} belongs to the pipe {letter.text(PIPE)}, which is not declared any more: publish it with"
            " `hifi apply DIR`, then replay",
        )
    if service not in _OF_DESTINATION:
        return inputs[service]
    name = letter.text(DESTINATION)
    destination = next(
        (candidate for candidate in current_revision.pipe.destinations if candidate.name == name), None
    )
    if destination is None:
        raise Rejected(
            "not-replayable",
            f"{letter.id} is for the destination {name}, which the pipe {current_revision.pipe.pipe} does not declare "
            "any more: declare it, publish the pipe with `hifi apply DIR`, then replay",
        )
    is_conditional = destination.when is not None or current_revision.pipe.enrich.filter is not None
    goes_to_enrich = is_conditional or reader(destination) == "lake"  # lake reads no retries
    return topics.normalized if goes_to_enrich else inputs[service]


def replayed(
    letter: DeadLetter, current_revision: PipeRevision, now_us: int, *, to_enrich: bool = False
) -> Record:
    """The record that a replay writes: the event as the service read it, with attempts counted from 0.

    It is processed with the current revision of its pipe: the one that refused it may just have been rolled back. If it
    goes back to enrich from a later service, it loses the fields that enrich adds.

    The header `hifi_service` stays: an event that enrich gets again has its old offset in `raw`, and by this header
    egest knows that it is not a copy.
    """
    changes: dict[str, bytes | None] = dict.fromkeys(_DROPPED)
    changes |= {REPLAY: b"%d" % (letter.replays + 1), IN: b"%d" % now_us}
    headers = with_revision(
        with_fields(letter.headers, changes), current_revision.number, current_revision.offset
    )
    value = letter.value
    if to_enrich and DESTINATION in letter.header_fields:
        value = _without_members(value, current_revision.pipe.enrich.added())
    return Record(letter.key, value, headers)


def _without_members(value: bytes | None, names: Collection[str]) -> bytes | None:
    """A JSON object without the members of these names that enrich appended; the rest stays byte for byte."""
    if not value or not names:
        return value
    text, remaining_names = value.rstrip(b" \t\r\n"), set(names)
    try:
        while last_member := _last_member(text, remaining_names):
            name, member = last_member
            text = text[: -len(member)].removesuffix(b",") + b"}"
            remaining_names.remove(name)
        members = object_members(text)
    except InvalidEvent:
        return value
    if not remaining_names & members.keys():
        return text
    # Another revision appended them in between.
    remaining_members = [
        b"%b:%b" % (orjson.dumps(name), bytes(raw))
        for name, raw in members.items()
        if name not in remaining_names
    ]
    return b"{%b}" % b",".join(remaining_members)


def _last_member(text: bytes, names: Collection[str]) -> tuple[str, bytes] | None:
    """Name and text, with the brace after it, of the last member of an object if it has one of these names."""
    members = object_members(text)
    for name in names:
        if name in members and text.endswith(
            member := b"%b:%b}" % (orjson.dumps(name), bytes(members[name]))
        ):
            return name, member
    return None


async def replay(
    producer: Producer,
    topics: Topics,
    dead_letters: Sequence[DeadLetter],
    pipes: Mapping[str, PipeRevision],
    held_pipes: Mapping[str, str] = _NONE_HELD,
    replayed_works: set[bytes] | None = None,
) -> AsyncIterator[tuple[DeadLetter, str]]:
    """Replay dead letters in their order; Kafka acknowledges each before it is noted as replayed.

    Args:
        producer: started.
        topics: of the stream.
        dead_letters: as `letters` returns them.
        pipes: name to the current revision, as the registry has it now.
        held_pipes: name to reason of the pipes that are held.
        replayed_works: `DeadLetter.work` of what was replayed since `dead_letters` were read; those of `dead_letters`
            are added. None: of nothing.

    Yields:
        Each dead letter with the topic that it went to; empty if it, or one of the same work, had been replayed before.

    Raises:
        Rejected: some cannot be replayed; raised after all others were.
    """
    rejections: list[Rejected] = []
    works = set[bytes]() if replayed_works is None else replayed_works
    for (topic, partition), chunk in _chunks(topics, dead_letters, pipes, held_pipes, rejections):
        replays = [(letter, topic) for letter in chunk]
        if topic:
            to_enrich = topic == topics.normalized
            replays = []
            records: list[Record] = []
            for letter in await _with_data(producer.bootstrap, topics.raw, chunk, rejections):
                record = replayed(letter, pipes[letter.text(PIPE)], now_us(), to_enrich=to_enrich)
                work = letter.work
                if work in works:
                    replays.append((letter, ""))
                elif is_sendable(record):
                    replays.append((letter, topic))
                    records.append(record)
                    if work is not None:
                        works.add(work)
                else:
                    rejections.append(
                        Rejected("not-replayable", f"{letter.id} is too large: send the event again, smaller")
                    )
            note = Record(None, replay_note([letter for letter, _ in replays]), [])
            await _write_both(producer, (topic, records), (topics.replays, [note]), partition)
        for result in replays:
            yield result
    if rejections:
        suffix = f", and {len(rejections) - 1} more" if len(rejections) > 1 else ""
        raise Rejected("not-replayable", rejections[0].detail + suffix)


async def _write_both(
    producer: Producer,
    replays: tuple[str, Sequence[Record]],
    note: tuple[str, Sequence[Record]],
    partition: int,
) -> None:
    """Write replays, then what notes them: the note also if this is cancelled meanwhile, unless Kafka does not answer.

    Args:
        producer: started.
        replays: topic and records.
        note: likewise.
        partition: of both topics.
    """

    async def write() -> None:
        for topic, records in (replays, note) if replays[1] else (note,):
            await producer.send_and_wait(topic, partition, records)

    writing = asyncio.create_task(write())
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait({writing}, timeout=NOTE_S)
        if not writing.done() or writing.cancelled() or writing.exception() is not None:
            logger.warning(
                "replays-not-noted", topic=replays[0], partition=partition, records=len(replays[1])
            )
        raise
    finally:
        writing.cancel()


async def _with_data(
    bootstrap: str, raw_topic: str, dead_letters: Sequence[DeadLetter], rejections: list[Rejected]
) -> list[DeadLetter]:
    """Dead letters of one partition, with data and key from `raw` where withheld; those that are gone are refused."""
    if not any(letter.withheld for letter in dead_letters):
        return list(dead_letters)
    letters = []
    async with topic_consumer(bootstrap, "hifi-dead-replay") as consumer:
        for letter in dead_letters:
            if letter.withheld:
                original_record = await _original(
                    consumer, TopicPartition(raw_topic, letter.partition), letter
                )
                if original_record is None:
                    reason = (
                        f"{letter.id} has no data, and the topic {raw_topic} does not have the event any more"
                    )
                    rejections.append(Rejected("not-replayable", reason))
                    continue
                headers = with_fields(letter.headers, {RAW: None})
                letter = replace(  # noqa: PLW2901
                    letter, key=original_record.key, value=original_record.value or b"", headers=headers
                )
            letters.append(letter)
    return letters


async def _original(
    consumer: AIOKafkaConsumer, tp: TopicPartition, letter: DeadLetter
) -> ConsumerRecord | None:
    """The event that a dead letter stands for; None: `raw` does not have it any more."""
    offset = letter.count(RAW)
    existing_offsets = (await offset_ranges(consumer, [tp]))[tp]
    if offset not in existing_offsets:
        return None
    async for records in read_ranges(consumer, {tp: range(offset, offset + 1)}):
        for record in records:
            if record.offset == offset and identity(record.headers).seq == identity(letter.headers).seq:
                return record
    return None


def _chunks(
    topics: Topics,
    dead_letters: Sequence[DeadLetter],
    pipes: Mapping[str, PipeRevision],
    held_pipes: Mapping[str, str],
    rejections: list[Rejected],
) -> Iterator[tuple[tuple[str, int], list[DeadLetter]]]:
    """Groups of neighbours that go to the same (topic, partition); topic empty: they were replayed before."""

    def target_partition(letter: DeadLetter) -> tuple[str, int] | None:
        if letter.replayed:
            return "", letter.partition
        pipe = letter.text(PIPE)
        if pipe in held_pipes:
            reason = f"the pipe {pipe}, which is held: {held_pipes[pipe]}. {HELD_ADVICE}, then replay"
            rejections.append(Rejected("not-replayable", f"{letter.id} belongs to {reason}"))
            return None
        try:
            return target(topics, letter, pipes.get(pipe)), letter.partition
        except Rejected as rejection:
            rejections.append(rejection)
            return None

    for topic_partition, neighbours in groupby(dead_letters, target_partition):
        letters = list(neighbours)
        if topic_partition is not None:
            for start in range(0, len(letters), CHUNK):
                yield topic_partition, letters[start : start + CHUNK]
