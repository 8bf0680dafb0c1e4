"""A mask that cannot be applied lets no data pass and keeps none: real Kafka, real processes."""

from pathlib import Path

import orjson
from tests.libs.pipe.normalize.test_left_out import DEBEZIUM
from tests.support.normalize.normalize_harness import Stream, headers, ids, new_stream, normalize, pipe

from hifi.delivery.dead_letters.letter import DeadLetter
from hifi.delivery.dead_letters.replay import replay
from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi_debezium.declaration import DebeziumSource

CANARY = "canary-4711"
CHANGES = DebeziumSource.model_validate(DEBEZIUM)


async def letters(stream: Stream) -> list[DeadLetter]:
    """The dead letters of the stream."""
    return [
        DeadLetter(
            record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
        for record in await stream.all(stream.topics.dead_letter)
    ]


async def test_a_version_whose_mask_cannot_be_applied_makes_dead_letters_without_data_that_can_be_replayed(
    kafka: str, log: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    masked_pipe = pipe("people", mask={"ssn": {"hash": {"file": str(key)}}, "n": "drop"})
    async with new_stream(kafka, pipe("people"), pipe("other")) as stream:
        await stream.put(1, stream.event("people", {"n": 1}))
        async with normalize(stream, log, normalize_broken_retry_s=0.2) as instance:
            await stream.read(stream.topics.normalized, 1)
            await stream.publish(masked_pipe)
            events = [stream.event("people", {"n": n, "ssn": CANARY}) for n in range(3)]
            await stream.put(1, *events, stream.event("other", {}))
            dead_letters = await stream.read(stream.topics.dead_letter, 3)
            await instance.until(200, ["pipe people"])
            assert {letter.value for letter in dead_letters} == {None}
            assert CANARY not in repr(dead_letters)
            assert [headers(letter)["hifi_reason"] for letter in dead_letters] == [b"mask-unavailable"] * 3
            assert [int(headers(letter)["hifi_raw"]) for letter in dead_letters] == [1, 2, 3]
            assert ids(await stream.read(stream.topics.normalized, 2)) == [1, 5], "the other pipe goes on"

            key.write_text("secret")
            await instance.until_no_warnings()
            pipes = (await read_registry(stream.kafka, stream.topics)).pipes
            replayed_letters = [
                letter_with_topic
                async for letter_with_topic in replay(
                    stream.producer, stream.topics, await letters(stream), pipes
                )
            ]
            assert [topic for _, topic in replayed_letters] == [stream.topics.raw] * 3
            passed_records = await stream.read(stream.topics.normalized, 5)
            assert await instance.stop() == 0
    assert sorted(ids(passed_records)) == [1, 2, 3, 4, 5]
    assert CANARY not in repr(passed_records)


async def test_a_broken_version_with_further_masks_is_not_replaced_by_the_one_before(
    kafka: str, log: Path
) -> None:
    broken_pipe = pipe("people", mask={"ssn": "drop"}, function="nowhere:function")
    async with new_stream(kafka, pipe("people", mask={"n": "drop"})) as stream:
        await stream.put(1, stream.event("people", {"n": 1}))
        async with normalize(stream, log) as instance:
            await stream.read(stream.topics.normalized, 1)
            await stream.publish(broken_pipe)
            await stream.put(1, stream.event("people", {"ssn": CANARY}))
            (dead_letter,) = await stream.read(stream.topics.dead_letter, 1)
            assert dead_letter.value is None
            assert await instance.stop() == 0
        assert CANARY not in repr(await stream.all(stream.topics.normalized))


def pipes_of_changes(folder: Path) -> tuple[Pipe, Pipe]:
    """Pipes of changes that mask the column `mail`: `rows` hashes it, `redacted` redacts it."""
    (folder / "key").write_text("secret")
    hash_action = {"hash": {"file": str(folder / "key")}}
    rows_pipe = pipe("rows", mask={"mail": hash_action}).model_copy(update={"source": CHANGES})
    redacted_pipe = pipe("redacted", mask={"mail": "redact"}).model_copy(update={"source": CHANGES})
    return rows_pipe, redacted_pipe


async def test_a_masked_column_of_a_change_is_on_no_further_topic_not_even_in_keys(
    kafka: str, log: Path, tmp_path: Path
) -> None:
    rows_pipe, redacted_pipe = pipes_of_changes(tmp_path)
    key = {"mail": CANARY}
    data = {**key, "change": {"op": "update", "key": key, "before": key}}
    async with new_stream(kafka, rows_pipe, redacted_pipe) as stream:
        await stream.put(
            1,
            *(
                stream.event(name, data)._replace(key=b'{"mail":"canary-4711"}')
                for name in ("rows", "redacted")
            ),
        )
        async with normalize(stream, log) as instance:
            (passed_record,) = await stream.read(stream.topics.normalized, 1)
            (dead_letter,) = await stream.read(stream.topics.dead_letter, 1)
            assert await instance.stop() == 0
    assert CANARY not in repr(passed_record)
    assert orjson.loads(passed_record.key)["mail"] == orjson.loads(passed_record.value)["mail"]
    assert dead_letter.value is None
    assert CANARY not in repr(dead_letter)
    assert headers(dead_letter)["hifi_reason"] == b"mask-unavailable"


async def test_a_masked_column_is_not_in_the_key_of_a_repetitions_receipt(
    kafka: str, log: Path, tmp_path: Path
) -> None:
    rows_pipe, redacted_pipe = pipes_of_changes(tmp_path)
    async with new_stream(kafka, rows_pipe, redacted_pipe) as stream:
        for name in ("rows", "redacted"):
            for _ in range(2):
                event = stream.event(name, {"mail": CANARY})
                repeated_headers = [
                    (header, b"same" if header == "ce_id" else value) for header, value in event.headers
                ]
                await stream.put(1, event._replace(key=b'{"mail":"canary-4711"}', headers=repeated_headers))
        async with normalize(stream, log) as instance:
            (passed_record,) = await stream.read(stream.topics.normalized, 1)
            rows_receipt, redacted_receipt = await stream.read(stream.topics.receipts, 2)
            assert await instance.stop() == 0
    assert rows_receipt.key == passed_record.key
    assert redacted_receipt.key is None
    assert CANARY not in repr((rows_receipt, redacted_receipt))


async def test_a_replay_gives_back_the_key_that_was_withheld(kafka: str, log: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    redacted_pipe = pipe("rows", mask={"mail": "redact"}).model_copy(update={"source": CHANGES})
    hashed_pipe = pipe("rows", mask={"mail": {"hash": {"file": str(tmp_path / "key")}}})
    key = b'{"mail":"canary-4711"}'
    async with new_stream(kafka, redacted_pipe) as stream:
        await stream.put(1, stream.event("rows", {"mail": CANARY})._replace(key=key))
        async with normalize(stream, log) as instance:
            (dead_letter,) = await stream.read(stream.topics.dead_letter, 1)
            assert dead_letter.key is None
            await stream.publish(hashed_pipe.model_copy(update={"source": CHANGES}))
            pipes = (await read_registry(stream.kafka, stream.topics)).pipes
            async for _ in replay(stream.producer, stream.topics, await letters(stream), pipes):
                pass
            (passed_record,) = await stream.read(stream.topics.normalized, 1)
            assert await instance.stop() == 0
        _, replayed_record = await stream.all(stream.topics.raw)
    assert replayed_record.key == key
    assert orjson.loads(passed_record.key)["mail"] == orjson.loads(passed_record.value)["mail"]
