"""Letting dead letters go again: back to the input of the service that refused them, with the same identity.

What was replayed is noted in the topic `replays` right after. A replay that is repeated leaves out what is noted; what
was cut off between the two goes twice, and egest drops the copy, since the number of the replay is part of the key by
which it tells copies.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby
from typing import Final

import orjson

from hifi.clock import now_us
from hifi.dead_letters.letter import DeadLetter
from hifi.errors import Rejected
from hifi.event import (
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DETAIL,
    DUE,
    FIRST_ATTEMPT,
    IN,
    PASS,
    POINTER,
    REASON,
    REPLAY,
    RETRY,
    SERVICE,
    SOURCE,
    Record,
    identity,
    with_headers,
)
from hifi.kafka.producer import Producer
from hifi.topics import Topics

CHUNK: Final = 100
"""Letters that are written and noted together; well below the window in which egest knows a copy by its key."""
_GONE: Final = (REASON, DETAIL, POINTER, PASS, ATTEMPT, FIRST_ATTEMPT, AMBIGUOUS, DUE, RETRY, SOURCE)


def target(topics: Topics, letter: DeadLetter) -> str:
    """The topic that a replay of the letter goes to.

    Raises:
        Rejected: it cannot be replayed, with the reason.
    """
    try:
        identity(letter.facts)
    except Rejected as why:
        raise Rejected("not-replayable", f"{letter.id} is no event of hifi's: {why.detail}") from None
    service = letter.text(SERVICE)
    if service in {"egest", "retrier"} and DESTINATION not in letter.facts:
        raise Rejected("not-replayable", f"{letter.id} names no destination")
    inputs = {
        "normalize": topics.raw,
        "enrich": topics.normalized,
        "egest": topics.retry_out,
        "retrier": topics.retry_out,
    }
    if service not in inputs:
        raise Rejected("not-replayable", f"{letter.id} does not say which service refused it")
    return inputs[service]


def replayed(letter: DeadLetter, now_us: int) -> Record:
    """The record that a replay writes: the event as the service got it, with a fresh count of attempts.

    The service's name stays: what comes to enrich again has its old place in `raw`, and egest must not take it for a copy.
    """
    changes: dict[str, bytes | None] = dict.fromkeys(_GONE)
    changes |= {REPLAY: b"%d" % (letter.replays + 1), IN: b"%d" % now_us}
    return Record(letter.key, letter.value, with_headers(letter.headers, changes))


async def replay(
    producer: Producer, topics: Topics, some: Sequence[DeadLetter]
) -> AsyncIterator[tuple[DeadLetter, str]]:
    """Let letters go again, in their order, acknowledged by Kafka before they are noted as replayed.

    Args:
        producer: started.
        topics: of the stream.
        some: letters as `letters` gives them.

    Yields:
        Each letter with what became of it: the topic it went to, or empty when it had been replayed before.

    Raises:
        Rejected: some cannot be replayed; raised when all others were.
    """
    refused: list[Rejected] = []
    for (topic, partition), chunk in _chunks(topics, some, refused):
        if topic:
            await producer.send_and_wait(topic, partition, [replayed(one, now_us()) for one in chunk])
            note = orjson.dumps({"offsets": [one.offset for one in chunk]})
            await producer.send_and_wait(topics.replays, partition, [Record(None, note, [])])
        for one in chunk:
            yield one, topic
    if refused:
        more = f", and {len(refused) - 1} more like it" if len(refused) > 1 else ""
        raise Rejected("not-replayable", refused[0].detail + more)


def _chunks(
    topics: Topics, some: Sequence[DeadLetter], refused: list[Rejected]
) -> Iterator[tuple[tuple[str, int], list[DeadLetter]]]:
    """Neighbours that go to the same place together; the topic is empty for those that were replayed before."""

    def place(letter: DeadLetter) -> tuple[str, int] | None:
        if letter.replayed:
            return "", letter.partition
        try:
            return target(topics, letter), letter.partition
        except Rejected as why:
            refused.append(why)
            return None

    for where, neighbours in groupby(some, place):
        letters = list(neighbours)
        if where is not None:
            for start in range(0, len(letters), CHUNK):
                yield where, letters[start : start + CHUNK]
