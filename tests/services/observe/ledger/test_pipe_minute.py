"""The identity sets of a closed minute, equal ones of which are kept once."""

import orjson
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
    sets |= {"unresolved": pipe_minute.unresolved, "known": pipe_minute.all_ids}
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


def outage(destinations: int = 20, events: int = 15_000) -> PipeMinute:
    """A closed minute whose every second event waits for each of many destinations."""
    pipe_minute = PipeMinute("orders", 7)
    sequences = [sequence * 5 for sequence in range(events)]
    destination_names = [f"desk-{number}" for number in range(destinations)]
    pipe_minute.show([RAW, *(EventStage("wanted", name) for name in destination_names)], "e", sequences)
    for name in destination_names:
        pipe_minute.show([EventStage("to-retry", name, 1)], "e", sequences)
        pipe_minute.show([EventStage("retry-in", name, 1)], "e", sequences[::2])
    pipe_minute.close({}, pipe_minute.seen[RAW].copy(), {})
    return pipe_minute


def identities(pipe_minute: PipeMinute) -> dict[EventStage, list[tuple[str, int]]]:
    return {stage: list(ids) for stage, ids in pipe_minute.seen.items()}


def test_equal_sets_are_written_once_so_that_an_outage_of_many_destinations_fits_into_a_record() -> None:
    pipe_minute = outage()
    dump = orjson.loads(orjson.dumps(pipe_minute.dump(sets_once=True), option=orjson.OPT_NON_STR_KEYS))
    assert len(orjson.dumps(dump)) < 4 * len(orjson.dumps(pipe_minute.unresolved.dump()))
    restored_minute = PipeMinute.load("orders", 7, dump)
    assert identities(restored_minute) == identities(pipe_minute)
    restored_minute.pass_by(EventStage("retry-in", "desk-0", 1), "e", [0])
    restored_minute.show([EventStage("retry-in", "desk-1", 1)], "e", [5])
    changed_stages = [
        stage for stage, ids in identities(restored_minute).items() if ids != identities(pipe_minute)[stage]
    ]
    assert changed_stages == [EventStage("retry-in", "desk-1", 1)]


def test_a_share_has_the_form_of_the_release_before_and_is_read_without_what_that_lacks() -> None:
    pipe_minute = outage(2, 10)
    dump = pipe_minute.dump()
    assert dump["seen"] == [[*stage, ids.dump()] for stage, ids in sorted(pipe_minute.seen.items())]
    assert dump["known"] == pipe_minute.all_ids.dump()
    del dump["sets"]
    restored_minute = PipeMinute.load("orders", 7, dump)
    assert identities(restored_minute) == identities(pipe_minute)
    assert list(restored_minute.all_ids) == list(pipe_minute.all_ids)


def test_a_share_without_identities_keeps_what_was_counted_and_takes_no_event_twice() -> None:
    pipe_minute = outage(2, 10)
    restored_minute = PipeMinute.load("orders", 7, pipe_minute.dump(with_identities=False))
    assert (len(restored_minute.all_ids), len(restored_minute.unresolved)) == (10, 0)
    restored_minute.show([RAW], "e", [0])
    assert restored_minute.copies[RAW] == 1


def test_a_closed_minute_is_published_again_once_a_topic_begins_again() -> None:
    """Else a restart would take records of the new topic for counted ones."""
    pipe_minute, open_minute = closed(), PipeMinute("orders", 8)
    for minute in (pipe_minute, open_minute):
        minute.begin_again("raw")
    assert (pipe_minute.dirty, open_minute.dirty) == (True, False)
