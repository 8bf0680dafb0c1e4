"""Which declarations count: of several that replace the same one the first, for everybody who reads the topic."""

import asyncio

import orjson
import pytest

from hifi.control.declaration import NONE, Declaration, Declarations, DeclaredState, undeclared
from hifi.control.declaration_log import DeclarationLog
from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision


def pipe(note: str, name: str = "flights") -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": name,
            "source": {"keys": [{"env": "KEY"}]},
            "destinations": [{"name": note, "url": "http://127.0.0.1:9/"}],
        }
    )


def take_declaration(declarations: Declarations, offset: int, replaces: int, note: str = "x") -> None:
    record = Declaration("flights", pipe(note), note, 1, replaces).record()
    declarations.take(record.key, record.value, offset)


def test_the_first_of_two_that_replace_the_same_declaration_counts():
    declarations = Declarations(keep=5)
    take_declaration(declarations, 3, NONE, "ann")
    take_declaration(declarations, 7, 3, "ben")
    take_declaration(declarations, 8, 3, "cid")
    take_declaration(declarations, 9, NONE, "dan")
    assert [(version.number, version.author) for version in declarations.versions("flights")] == [
        (3, "ann"),
        (7, "ben"),
    ]
    take_declaration(declarations, 12, 7, "eve")
    assert declarations.newest["flights"].author == "eve"


def test_a_pipe_that_was_paused_without_a_declaration_stays_paused_and_can_be_resumed():
    """As after `hifi pipes pause` in a mesh that gets a control plane later, or in a restored backup."""
    declarations, paused_revision = Declarations(), PipeRevision(pipe("x"), 1, paused=True)
    assert declarations.paused("flights", paused_revision)
    assert not declarations.paused("flights", PipeRevision(pipe("x"), 1))
    assert not declarations.paused("flights", None)
    before = undeclared(paused_revision)
    assert before.state is DeclaredState.PAUSED
    assert before.with_pause("ann", 1, paused=False).state is DeclaredState.ACTIVE
    take_declaration(declarations, 3, NONE)
    assert not declarations.paused("flights", paused_revision)  # the declaration counts, not what is in force


def test_a_record_written_twice_counts_once():
    declarations = Declarations(keep=5)
    record = Declaration("flights", pipe("x"), "ann", 1).record()
    for offset in (0, 1):
        declarations.take(record.key, record.value, offset)
    assert [version.number for version in declarations.versions("flights")] == [0]


def test_a_pipe_that_this_release_cannot_read_keeps_the_one_before_and_can_be_replaced():
    declarations = Declarations()
    take_declaration(declarations, 0, NONE, "ann")
    record = Declaration("flights", pipe("x"), "ben", 1, 0).record()
    value = orjson.loads(record.value or b"")
    value["pipe"]["of_a_later_release"] = 1
    with pytest.raises(ValueError, match="offset 4 is not a declaration"):
        declarations.take(record.key, orjson.dumps(value), 4)
    assert declarations.newest["flights"].author == "ann"
    assert declarations.number("flights") == 4
    take_declaration(declarations, 5, 4, "cid")
    assert declarations.newest["flights"].author == "cid"


def test_of_a_trimmed_topic_the_first_record_that_is_left_counts():
    declarations = Declarations()
    take_declaration(declarations, 9, 8, "ann")
    assert declarations.newest["flights"].number == 9


async def test_of_several_writers_at_the_same_time_exactly_one_wins_each_round(kafka, topic):
    name = await topic()
    logs = [DeclarationLog(kafka, name, f"writer-{number}", keep=100) for number in range(4)]
    await asyncio.gather(*(log.start() for log in logs))
    try:
        number = NONE
        for _ in range(10):
            declarations = [
                Declaration("flights", pipe("x"), f"writer-{writer}", 1, number)
                for writer in range(len(logs))
            ]
            declared_by_logs = await asyncio.gather(
                *(log.append([declaration]) for log, declaration in zip(logs, declarations, strict=True))
            )
            winners = [declaration for declared_by_log in declared_by_logs for declaration in declared_by_log]
            assert len(winners) == 1
            number = winners[0].number
        await asyncio.gather(*(log.catch_up() for log in logs))
        histories = [[version.id for version in log.declared.versions("flights")] for log in logs]
        assert len(histories[0]) == 10
        assert histories.count(histories[0]) == len(logs)
    finally:
        await asyncio.gather(*(log.stop() for log in logs))
