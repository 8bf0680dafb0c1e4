"""A pipe whose declaration cannot be read lets no data pass and keeps none; others go on; real Kafka and processes."""

from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from tests.services.normalize.test_masks import CANARY, letters
from tests.support.held_pipes import unreadable_body, unreadable_record
from tests.support.normalize.normalize_harness import Stream, headers, ids, new_stream, normalize, pipe

from hifi.delivery.dead_letters.letter import DeadLetter
from hifi.delivery.dead_letters.replay import replay
from hifi.pipe.registry import publish, read_registry
from hifi.pipe.revision import NextRevision, pipe_record
from hifi.record.record import Record
from hifi.runtime.errors import Rejected

MASKED = pipe("people", mask={"ssn": "drop"})


def assert_held(dead_letters: list[ConsumerRecord]) -> None:
    """Assert that dead letters have no data, and say that the pipe is held."""
    assert {headers(letter)["hifi_reason"] for letter in dead_letters} == {b"pipe-unreadable"}
    assert b"the pipe people is held" in headers(dead_letters[0])["hifi_detail"]
    assert CANARY not in repr(dead_letters)
    assert {letter.value for letter in dead_letters} == {None}


async def replay_all(stream: Stream, dead_letters: list[DeadLetter]) -> list[str]:
    """Replay dead letters as `hifi dead replay` does; returns the topics that they go to."""
    registry = await read_registry(stream.kafka, stream.topics)
    replays = replay(stream.producer, stream.topics, dead_letters, registry.pipes, registry.held)
    return [topic async for _, topic in replays]


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("damaged", [False, True], ids=["later release", "damaged"])
async def test_events_of_a_held_pipe_become_dead_letters_without_data_that_can_be_replayed(
    kafka: str, log: Path, *, restarted: bool, damaged: bool
) -> None:
    broken_record = Record(b"people", b"{", []) if damaged else unreadable_record(MASKED, 2)
    async with new_stream(kafka, pipe("other"), *([] if restarted else [pipe("people")])) as stream:
        if restarted:  # Kafka may have compacted what was before: the service has never read the pipe
            await publish(kafka, stream.topics, [broken_record])
            stream.version += 1
        async with normalize(stream, log) as instance:
            if not restarted:
                await stream.put(1, stream.event("people", {"n": 0}))
                await stream.read(stream.topics.normalized, 1)
                await publish(kafka, stream.topics, [broken_record])
                stream.version += 1
            count_before = len(await stream.all(stream.topics.normalized))
            events = [stream.event("people", {"n": n, "ssn": CANARY}) for n in range(2)]
            await stream.put(1, *events, stream.event("other", {}))
            dead_letters = await stream.read(stream.topics.dead_letter, 2)
            assert_held(dead_letters)
            await stream.read(stream.topics.normalized, count_before + 1)  # the other pipe goes on
            await instance.until(200, ["declaration of people"])
            with pytest.raises(Rejected, match=r"pipe people, which is held: .* then replay"):
                await replay_all(stream, await letters(stream))

            await stream.publish(MASKED)
            await instance.until_no_warnings()
            assert await replay_all(stream, await letters(stream)) == [stream.topics.raw] * 2
            passed_records = await stream.read(stream.topics.normalized, count_before + 3)
            assert await instance.stop() == 0
    assert len(set(ids(passed_records))) == count_before + 3
    assert CANARY not in repr(passed_records)


async def test_events_of_a_next_revision_that_cannot_be_read_are_held_and_those_of_the_current_one_pass(
    kafka: str, log: Path
) -> None:
    async with new_stream(kafka, pipe("people")) as stream:
        current_record = pipe_record(pipe("people"), since=1, following=NextRevision(revision=2, share=5000))
        await publish(kafka, stream.topics, [unreadable_body(MASKED, 2), current_record])
        async with normalize(stream, log) as instance:
            await stream.put(
                1,
                stream.event("people", {"ssn": CANARY}, version=2),
                stream.event("people", {"n": 1}, version=1),
            )
            assert_held(await stream.read(stream.topics.dead_letter, 1))
            assert ids(await stream.read(stream.topics.normalized, 1)) == [2]
            assert await instance.stop() == 0
