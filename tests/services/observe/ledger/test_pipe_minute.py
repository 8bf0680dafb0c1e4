"""The identity sets of a closed minute, equal ones of which are kept once."""

import pytest

from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.stage import EventStage

RAW, WANTED = EventStage("raw"), EventStage("wanted", "desk")
PARKED, DELIVERED = EventStage("parked", "desk", 1), EventStage("delivered", "desk")
RETRY_IN = EventStage("retry-in", "desk", 1)


def closed(*, restored: bool = False) -> PipeMinute:
    """A closed minute with the parked deliveries 1 and 2."""
    pipe_minute = PipeMinute("orders", 7)
    pipe_minute.span("parked", 5)
    pipe_minute.show([RAW, WANTED, RETRY_IN, PARKED], "e", [1, 2])
    pipe_minute.close({}, pipe_minute.seen[RAW].copy(), {})
    return PipeMinute.load("orders", 7, pipe_minute.dump()) if restored else pipe_minute


def members(pipe_minute: PipeMinute) -> dict[str, list[int]]:
    sets = {stage.kind: ids for stage, ids in pipe_minute.seen.items()}
    sets |= {"unresolved": pipe_minute.unresolved, "known": pipe_minute.known}
    return {name: [sequence for _, sequence in ids] for name, ids in sets.items()}


BOTH = {key: [1, 2] for key in ("raw", "wanted", "retry-in", "parked", "unresolved", "known")}


@pytest.mark.parametrize("restored", [False, True])
def test_equal_sets_are_kept_once(restored: bool) -> None:
    pipe_minute = closed(restored=restored)
    assert members(pipe_minute) == BOTH
    assert {id(ids) for ids in pipe_minute.seen.values()} == {id(pipe_minute.unresolved)}
    assert pipe_minute.size_bytes() < 2 * pipe_minute.unresolved.size_bytes() + 100


@pytest.mark.parametrize("restored", [False, True])
def test_each_change_of_a_closed_minute_changes_its_own_set_alone(restored: bool) -> None:
    pipe_minute = closed(restored=restored)
    pipe_minute.show([RAW], "e", [3])
    assert members(pipe_minute) == BOTH | {
        "raw": [1, 2, 3],
        "unresolved": [1, 2, 3],
        "known": [1, 2, 3],
    }

    pipe_minute = closed(restored=restored)
    pipe_minute.show([DELIVERED], "e", [1])
    assert members(pipe_minute) == BOTH | {"delivered": [1]}

    pipe_minute = closed(restored=restored)
    pipe_minute.show_range(EventStage("accepted"), "e", 2, 3)
    assert members(pipe_minute) == BOTH | {
        "accepted": [2, 3],
        "unresolved": [1, 2, 3],
        "known": [1, 2, 3],
    }

    pipe_minute = closed(restored=restored)
    pipe_minute.pass_by(PARKED, "e", [1])
    pipe_minute.pass_by(RETRY_IN, "e", [2, 9])
    assert members(pipe_minute) == BOTH
    assert {stage.kind: list(ids) for stage, ids in pipe_minute.passed.items()} == {
        "parked": [("e", 1)],
        "retry-in": [("e", 2)],
    }
    pipe_minute.pass_deleted("parked", "retry-in")
    assert members(pipe_minute) == BOTH
    assert list(pipe_minute.passed[RETRY_IN]) == [("e", 1), ("e", 2)]


def test_sets_that_were_shared_stay_right_over_several_closings() -> None:
    pipe_minute = closed()
    pipe_minute.show([DELIVERED], "e", [1])
    pipe_minute.close({}, pipe_minute.seen[RAW] - pipe_minute.seen[DELIVERED], {})
    assert members(pipe_minute) == {key: [2] for key in BOTH} | {"known": [1, 2]}
    pipe_minute.show([DELIVERED], "e", [1, 2])
    assert members(pipe_minute)["delivered"] == [2], "1 is a copy"
    assert pipe_minute.copies[DELIVERED] == 1
