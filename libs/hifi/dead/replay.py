"""Letting dead letters go again: back to the input of the node that refused them, with the same identity.

The number of the replay is part of the key by which egest tells copies, and each replay leaves a receipt that names
its dead letter. So a replay that is repeated, or that was cut off in the middle, sends nothing twice.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from hifi.dead.letter import Letter
from hifi.dead.read import REPLAYED
from hifi.errors import Rejected
from hifi.event import (
    ACCEPTED,
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DETAIL,
    DUE,
    FIRST_ATTEMPT,
    MINUTE,
    NODE,
    OUTCOME,
    PASS,
    PIPE,
    PIPE_VERSION,
    POINTER,
    REASON,
    REPLAY,
    RETRY,
    SEQ,
    SOURCE,
    Record,
    identity,
    with_headers,
)
from hifi.kafka.producer import Producer
from hifi.topics import Topics

_GONE: Final = (REASON, DETAIL, POINTER, NODE, PASS, ATTEMPT, FIRST_ATTEMPT, AMBIGUOUS, DUE, RETRY, SOURCE)
_KEPT: Final = (PIPE, PIPE_VERSION, SEQ, ACCEPTED, MINUTE, DESTINATION)


def target(topics: Topics, letter: Letter) -> str:
    """The topic that a replay of the letter goes to.

    Raises:
        Rejected: it cannot be replayed, with the reason.
    """
    identity(letter.facts)
    node = letter.text(NODE)
    if node in {"egest", "retrier"} and DESTINATION not in letter.facts:
        raise Rejected("not-replayable", f"{letter.id} names no destination")
    inputs = {
        "normalize": topics.raw,
        "enrich": topics.normalized,
        "egest": topics.retry_out,
        "retrier": topics.retry_out,
    }
    if node not in inputs:
        raise Rejected("not-replayable", f"{letter.id} does not say which node refused it")
    return inputs[node]


def replayed(letter: Letter) -> Record:
    """The record that a replay writes: the event as the node got it, with a fresh count of attempts."""
    changes: dict[str, bytes | None] = dict.fromkeys(_GONE)
    changes[REPLAY] = b"%d" % (letter.replays + 1)
    return Record(letter.key, letter.value, with_headers(letter.headers, changes))


def receipt(letter: Letter) -> Record:
    """The receipt that marks the letter as replayed."""
    headers = [(name, letter.facts[name]) for name in _KEPT if name in letter.facts]
    headers += [
        (OUTCOME, REPLAYED),
        (SOURCE, b"dead-letter:%d" % letter.offset),
        (REPLAY, b"%d" % (letter.replays + 1)),
    ]
    return Record(letter.key, None, headers)


async def replay(
    producer: Producer, topics: Topics, some: Sequence[Letter]
) -> AsyncIterator[tuple[Letter, str]]:
    """Let letters go again, one after another, each acknowledged by Kafka before its receipt is written.

    Yields:
        Each letter with what became of it: the topic it went to, or empty when it had been replayed before.

    Raises:
        Rejected: a letter cannot be replayed; those before it were.
    """
    for one in some:
        if one.replayed:
            yield one, ""
            continue
        topic = target(topics, one)
        await producer.deliver(topic, one.partition, [replayed(one)])
        await producer.deliver(topics.receipts, one.partition, [receipt(one)])
        yield one, topic
