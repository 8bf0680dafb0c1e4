"""Records of the owner of a pipe: shares that were deleted do not come back, and days keep their counts."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import orjson
import pytest

from hifi_observe.colours.colours_day import ColoursDay
from hifi_observe.ledger.closing import MinuteResult
from hifi_observe.ledger.hops import Unresolved
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.availability import DAY_MINUTES, SloLimits
from hifi_observe.minutes.day_record import DayRecord, MinuteState, StateSpan
from hifi_observe.minutes.merged_minute import dump
from hifi_observe.minutes.merger import MinuteMerger
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.named_ids import NamedIds

DAY = 19_000
FIRST = DAY * DAY_MINUTES
LIMITS = SloLimits(p95_us=1_000_000, loss=0)


def minute_share(minute: int, *, lost_count: int = 0, at_us: int = 0) -> bytes:
    pipe_minute = PipeMinute("flights", minute)
    pipe_minute.measure("end.accepted/crm", [1000])
    ids = IdSet()
    ids.add("a" * 16, list(range(lost_count)))
    unresolved = [Unresolved("normalize", "", "lost", ids)] if lost_count else []
    minute_result = MinuteResult(pipe_minute, Counter({("ingest", "", "in"): 10}), unresolved)
    return orjson.dumps(dump(minute_result, 0, at_us or (minute + 6) * 60_000_000))


def close(store: MinuteStore, minute: int, **extra_fields: object) -> None:
    store.take(record_keys.closed(0), orjson.dumps({"minute": minute, "gaps": {}, **extra_fields}))


def owner(store: MinuteStore, keep_h: float = 48, first_minute: int = 0) -> MinuteMerger:
    return MinuteMerger(
        store, 1, {"flights": LIMITS}.get, lambda _: first_minute, keep_h=keep_h, amend_s=3600
    )


def follow(store: MinuteStore, records: list[tuple[bytes, dict[str, Any] | None]]) -> None:
    """Give a store the records of the owner, as another instance reads them."""
    for key, value in records:
        store.take(key, None if value is None else orjson.dumps(value))


def test_shares_that_were_let_go_are_not_merged_after_a_restart_and_the_day_stays() -> None:
    store = MinuteStore()
    share_key = record_keys.part("flights", FIRST, 0)
    store.take(share_key, minute_share(FIRST))
    store.take(
        record_keys.day("flights", DAY), orjson.dumps(DayRecord((StateSpan(0, 1, MinuteState("up")),)).dump())
    )
    store.take(share_key, None)
    close(store, FIRST + 3 * DAY_MINUTES)
    assert not store.changed["flights"]
    records = dict(owner(store, first_minute=FIRST + 3 * DAY_MINUTES).merge("flights"))
    assert record_keys.minute("flights", FIRST) not in records
    assert record_keys.day("flights", DAY) not in records
    assert store.days["flights"][DAY].by_state() == {"up": 1, "down": 0, "unknown": 0}


def test_an_instance_that_does_not_own_a_pipe_forgets_what_changed_with_the_shares() -> None:
    owner_store, other_store = MinuteStore(), MinuteStore()
    merger = owner(owner_store, keep_h=2)
    for minute in range(FIRST, FIRST + 300):
        for store in (owner_store, other_store):
            store.take(record_keys.part("flights", minute, 0), minute_share(minute))
            close(store, minute)
        follow(other_store, merger.merge("flights"))
    assert not owner_store.changed["flights"]
    assert len(other_store.changed["flights"]) <= 80


def test_a_share_older_than_what_is_kept_is_not_merged() -> None:
    store = MinuteStore()
    store.take(record_keys.part("flights", FIRST, 0), minute_share(FIRST, lost_count=1))
    close(store, FIRST + 3 * DAY_MINUTES)
    assert record_keys.minute("flights", FIRST) not in dict(owner(store).merge("flights"))
    assert not store.changed["flights"]


def test_a_day_counts_each_minute_once_when_minutes_are_let_go_before_its_end() -> None:
    store = MinuteStore()
    merger = owner(store, keep_h=1)
    for minute in range(FIRST, FIRST + 300):
        store.take(record_keys.part("flights", minute, 0), minute_share(minute))
        close(store, minute)
        merger.merge("flights")
    assert store.days["flights"][DAY].by_state() == {"up": 300, "down": 0, "unknown": 0}


@pytest.mark.slow
def test_a_minute_that_turns_out_down_after_its_day_moves_in_that_day() -> None:
    store = MinuteStore()
    merger = owner(store)
    for minute in range(FIRST, FIRST + DAY_MINUTES):
        store.take(record_keys.part("flights", minute, 0), minute_share(minute))
        close(store, minute)
        merger.merge("flights")
    late_minute = FIRST + DAY_MINUTES - 1
    store.take(
        record_keys.part("flights", late_minute, 0),
        minute_share(late_minute, lost_count=3, at_us=(late_minute + 60) * 60_000_000),
    )
    close(store, late_minute + 50)
    merger.merge("flights")
    assert store.days["flights"][DAY].by_state() == {"up": DAY_MINUTES - 1, "down": 1, "unknown": 0}


def test_a_minute_is_down_by_the_failed_answers_of_all_partitions_together() -> None:
    store = MinuteStore()
    merger = MinuteMerger(store, 2, {"flights": LIMITS}.get, lambda _: 0, keep_h=48, amend_s=3600)
    for failed_count, state in ((2, "up"), (3, "down")):
        minute = FIRST + failed_count
        close(store, minute, answers={str(minute): [failed_count, 100]})
        store.take(
            record_keys.closed(1), orjson.dumps({"minute": minute, "answers": {str(minute): [0, 150]}})
        )
        store.take(record_keys.part("flights", minute, 0), minute_share(minute))
        minute_record = dict(merger.merge("flights"))[record_keys.minute("flights", minute)]
        assert minute_record is not None
        assert (minute_record["state"], minute_record["causes"]) == (
            state,
            ["ingest"] if state == "down" else [],
        )


@pytest.mark.parametrize("ingest", [{"gaps": {str(FIRST): 30}}, {"answers": {str(FIRST): [5, 10]}}])
def test_a_minute_that_ingest_failed_is_still_down_when_it_is_amended_after_a_restart(
    ingest: dict[str, Any],
) -> None:
    store = MinuteStore()
    share = record_keys.part("flights", FIRST, 0)
    store.take(share, minute_share(FIRST))
    close(store, FIRST, **ingest)
    records = owner(store).merge("flights")
    first_record = dict(records)[record_keys.minute("flights", FIRST)]
    assert first_record is not None
    assert (first_record["state"], first_record["causes"]) == ("down", ["ingest"])
    # Of the markers the compacted topic has the newest alone; it does not name the minute.
    restarted_store = MinuteStore()
    follow(restarted_store, records)
    close(restarted_store, FIRST + 10)
    for attempt in (1, 2):
        restarted_store.take(share, minute_share(FIRST, at_us=(FIRST + 20 + attempt) * 60_000_000))
        minute_record = dict(owner(restarted_store).merge("flights"))[record_keys.minute("flights", FIRST)]
        assert minute_record is not None
        assert minute_record["at_us"] > first_record["at_us"]
        assert (minute_record["state"], minute_record["causes"]) == ("down", ["ingest"])
        assert restarted_store.states["flights"][FIRST] == "down"


def test_a_minute_in_which_a_paused_pipe_refused_requests_says_so_and_is_not_down() -> None:
    store = MinuteStore()
    refusals_by_minute = {str(FIRST): {"flights": 40, "orders": 2}}
    close(store, FIRST, gaps={str(FIRST): 0}, answers={str(FIRST): [0, 2]}, paused=refusals_by_minute)
    (_, minute_record), *_ = owner(store).merge("flights")
    assert minute_record is not None
    assert (minute_record["refused_paused"], minute_record["state"], minute_record["causes"]) == (
        40,
        "up",
        [],
    )


def test_a_pipe_has_no_minutes_before_the_one_in_which_it_was_declared() -> None:
    store, first_minute = MinuteStore(), FIRST + 6
    merger = owner(store, first_minute=first_minute)
    for minute in range(FIRST, first_minute + 2):
        close(store, minute)
        merger.merge("flights")
    assert sorted(store.minutes["flights"]) == [first_minute, first_minute + 1]


def test_events_of_a_minute_before_the_declaration_are_judged() -> None:
    store, first_minute = MinuteStore(), FIRST + 6
    merger = owner(store, first_minute=first_minute)
    store.take(record_keys.part("flights", first_minute - 1, 0), minute_share(first_minute - 1))
    close(store, first_minute - 1)
    merger.merge("flights")
    assert store.states["flights"] == {first_minute - 1: "up"}


@pytest.mark.slow
@pytest.mark.parametrize("keep_h", [1, 48])
@pytest.mark.parametrize("seed", range(5))
def test_days_have_the_states_and_counts_of_their_minutes_when_these_are_no_longer_kept(
    seed: int, keep_h: float
) -> None:
    draw = random.Random(seed)
    store, other_store = MinuteStore(), MinuteStore()
    merger = owner(store, keep_h=keep_h)
    lost_counts: dict[int, int] = {}
    at_us: dict[int, int] = {}

    def write(minute: int) -> None:
        lost_counts[minute] = draw.choice([0, 0, 0, 1, 3])
        at_us[minute] = at_us.get(minute, (minute + 6) * 60_000_000) + 1
        share = minute_share(minute, lost_count=lost_counts[minute], at_us=at_us[minute])
        store.take(record_keys.part("flights", minute, 0), share)

    first_minute = FIRST + DAY_MINUTES - 100
    for minute in range(first_minute, first_minute + 300):
        if draw.random() < 0.9 or minute == first_minute:
            write(minute)
        if draw.random() < 0.2:
            write(draw.choice([earlier for earlier in lost_counts if earlier > minute - 50]))
        close(store, minute)
        follow(other_store, merger.merge("flights"))
    for minute_store in (store, other_store):
        days = minute_store.days["flights"]
        states = {
            number * DAY_MINUTES + minute: (state.state, "loss" in state.causes)
            for number in days
            for minute, state in days[number].states()
        }
        expected = {
            minute: ("down", True) if number else ("up", False) for minute, number in lost_counts.items()
        }
        assert states == dict.fromkeys(range(first_minute, first_minute + 300), ("unknown", False)) | expected
        for number in (DAY, DAY + 1):
            minutes_of_day = [minute for minute in lost_counts if minute // DAY_MINUTES == number]
            assert days[number].counts["in"] == 10 * len(minutes_of_day)
            assert days[number].counts["lost"] == sum(lost_counts[minute] for minute in minutes_of_day)
        assert sorted(minute_store.ids["flights"]) == sorted(
            minute for minute, number in lost_counts.items() if number
        )


def test_ids_keep_the_names_that_were_looked_up_and_are_gone_with_the_loss() -> None:
    store = MinuteStore()
    merger = owner(store)
    share_key, ids_key = record_keys.part("flights", FIRST, 0), record_keys.ids("flights", FIRST)
    store.take(share_key, minute_share(FIRST, lost_count=2))
    close(store, FIRST)
    named_ids = NamedIds.load(dict(merger.merge("flights"))[ids_key] or {})
    assert (named_ids.lost_count, [event.sequence for event in named_ids.lost], named_ids.looked_up) == (
        2,
        [0, 1],
        False,
    )
    looked_up_ids = replace(
        named_ids, names={event.identity: f"id-{event.sequence}" for event in named_ids.lost}, looked_up=True
    )
    store.take(ids_key, orjson.dumps(looked_up_ids.dump()))
    store.take(share_key, minute_share(FIRST, lost_count=1, at_us=(FIRST + 20) * 60_000_000))
    amended_ids = NamedIds.load(dict(merger.merge("flights"))[ids_key] or {})
    assert (dict(amended_ids.names), amended_ids.looked_up) == ({f"{'a' * 16}:0": "id-0"}, True)
    store.take(share_key, minute_share(FIRST, lost_count=0, at_us=(FIRST + 30) * 60_000_000))
    assert dict(merger.merge("flights"))[ids_key] is None
    assert not store.ids["flights"]


@pytest.mark.slow
def test_days_and_ids_are_deleted_after_a_year() -> None:
    store = MinuteStore()
    old_records = {record_keys.day("flights", DAY): DayRecord((StateSpan(0, 1, MinuteState("up")),)).dump()}
    old_records[record_keys.ids("flights", FIRST)] = NamedIds(lost_count=1).dump()
    old_records[record_keys.colours_day("flights", DAY)] = ColoursDay().dump()
    old_records[record_keys.colours_ids("flights", FIRST)] = {"log": NamedIds(lost_count=1).dump()}
    for key, value in old_records.items():
        store.take(key, orjson.dumps(value))
    merger = owner(store)
    close(store, FIRST + 400 * DAY_MINUTES)
    assert not old_records.keys() & dict(merger.merge("flights")).keys()
    close(store, FIRST + 401 * DAY_MINUTES)
    records = dict(merger.merge("flights"))
    assert {key: records[key] for key in old_records} == dict.fromkeys(old_records)
    assert DAY not in store.days["flights"]
    assert not store.ids["flights"]
    assert not store.colours_days["flights"]
    assert not store.colours_ids["flights"]


def share(minute: int, partition: int, *, state: str = "", at_us: int = 0) -> bytes:
    """A share of ten events, one of which is unresolved in a state, if any."""
    pipe_minute = PipeMinute("flights", minute)
    ids = IdSet.of([("a" * 16, 1)])
    unresolved = [Unresolved("retrier", "crm", state, ids)] if state else []
    pipe_minute.close({}, ids if state else IdSet(), {})
    minute_result = MinuteResult(pipe_minute, Counter({("ingest", "", "in"): 10}), unresolved)
    return orjson.dumps(dump(minute_result, partition, at_us or (minute + 6) * 60_000_000))


@pytest.mark.slow
@pytest.mark.parametrize(("state", "days"), [("", 0), ("lost", 7), ("parked", 31), ("waiting", 31)])
def test_a_share_is_kept_for_as_long_as_its_events_are_followed(state: str, days: int) -> None:
    store = MinuteStore()
    merger, key = owner(store), record_keys.part("flights", FIRST, 0)
    store.take(key, share(FIRST, 0, state=state))
    for closed_minute in (FIRST, FIRST + 60, FIRST + days * DAY_MINUTES + 30):
        close(store, closed_minute)
        assert key not in dict(merger.merge("flights"))
    close(store, FIRST + days * DAY_MINUTES + 90)
    assert dict(merger.merge("flights"))[key] is None
    assert not store.parts["flights"]


def test_a_minute_is_merged_of_all_its_shares_when_only_one_partition_amends_it_after_an_hour() -> None:
    store = MinuteStore()
    merger = MinuteMerger(store, 2, {"flights": LIMITS}.get, lambda _: 0, keep_h=48, amend_s=3600)
    store.take(record_keys.part("flights", FIRST, 0), share(FIRST, 0))
    store.take(record_keys.part("flights", FIRST, 1), share(FIRST, 1, state="waiting"))
    for closed_minute in (FIRST, FIRST + 200):
        for partition in (0, 1):
            store.take(record_keys.closed(partition), orjson.dumps({"minute": closed_minute}))
        merger.merge("flights")
    amended_share = share(FIRST, 1, at_us=(FIRST + 200) * 60_000_000)
    store.take(record_keys.part("flights", FIRST, 1), amended_share)
    minute_record = dict(merger.merge("flights"))[record_keys.minute("flights", FIRST)]
    assert minute_record is not None
    assert (minute_record["in"], minute_record["waiting"]) == (20, 0)
    assert not store.parts["flights"], "nobody needs them any more"


@pytest.mark.slow
@pytest.mark.parametrize("stop_minutes", [DAY_MINUTES, 3 * DAY_MINUTES, 7 * DAY_MINUTES - 10])
@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_each_minute_of_a_stop_of_up_to_a_week_is_down(stop_minutes: int, restarts: int) -> None:
    store = MinuteStore()
    merger = owner(store, first_minute=FIRST - 10)
    for minute in range(FIRST - 10, FIRST):
        close(store, minute, gaps={str(minute): 1})
        merger.merge("flights")
    end_minute = FIRST + stop_minutes
    gaps = dict.fromkeys(map(str, range(FIRST, end_minute)), 60)
    close(store, end_minute, gaps=gaps | {str(end_minute): 1})
    merger = owner(store, first_minute=FIRST - 10)
    while records := merger.merge("flights"):
        assert len(records) < 2 * DAY_MINUTES + 100, "others have their turn"
        if restarts:
            restarts -= 1
            merger = owner(store, first_minute=FIRST - 10)
    states = {
        number * DAY_MINUTES + minute: state.state
        for number, day in store.days["flights"].items()
        for minute, state in day.states()
    }
    assert [minute for minute, state in states.items() if state == "down"] == list(range(FIRST, end_minute))
    assert states.keys() == set(range(FIRST - 10, end_minute + 1))
    assert min(store.minutes["flights"]) >= end_minute - 48 * 60, "minutes are kept for as long as before"


@pytest.mark.slow
def test_a_stop_keeps_the_usage_of_its_minutes() -> None:
    store = MinuteStore()
    merger = owner(store)
    close(store, FIRST, gaps={str(FIRST): 1})
    merger.merge("flights")
    store.take(record_keys.part("flights", FIRST + 5, 0), minute_share(FIRST + 5))
    close(store, FIRST + 5 * DAY_MINUTES)
    while merger.merge("flights"):
        pass
    assert store.days["flights"][DAY].counts["in"] == 10
    assert store.usage_days["flights"][DAY].usage.events == 10


def test_a_share_counts_though_the_clock_of_its_observer_is_behind() -> None:
    store = MinuteStore()
    merger = owner(store)
    end_us = (FIRST + 6) * 60_000_000
    store.take(record_keys.part("flights", FIRST, 0), minute_share(FIRST, at_us=end_us))
    close(store, FIRST)
    key = record_keys.minute("flights", FIRST)
    assert dict(merger.merge("flights"))[key]["lost"] == 0  # type: ignore[index]
    store.take(record_keys.part("flights", FIRST, 0), minute_share(FIRST, lost_count=3, at_us=end_us - 1))
    assert dict(merger.merge("flights"))[key]["lost"] == 3  # type: ignore[index]
    store.changed["flights"].add(FIRST)
    assert key not in dict(merger.merge("flights")), "it was merged of these shares"


def test_a_deleted_pipe_leaves_nothing_and_has_no_minutes_until_it_is_declared_again() -> None:
    store = MinuteStore()
    limits = {"flights": LIMITS}
    merger = MinuteMerger(store, 1, limits.get, lambda _: 0, keep_h=2, amend_s=3600)
    store.take(record_keys.part("flights", FIRST, 0), minute_share(FIRST))
    close(store, FIRST)
    merger.merge("flights")
    del limits["flights"]
    close(store, FIRST + 60)
    merger.merge("flights")
    limits["flights"] = LIMITS
    close(store, FIRST + 90)
    merged_minutes = [key for key, value in merger.merge("flights") if value and key.startswith(b"minute")]
    assert merged_minutes == [record_keys.minute("flights", FIRST + 90)]
    del limits["flights"]
    close(store, FIRST + 400 + 400 * DAY_MINUTES + DAY_MINUTES)
    assert any(kept.get("flights") for kept in store.kept())
    merger.merge("flights")
    assert not any(kept.get("flights") for kept in store.kept())


@pytest.mark.parametrize(
    "value", [b"5", b"{}", b"{", minute_share(FIRST).replace(b'"ingest"', b'"other"'), b'{"pipe_minute":[]}']
)
def test_what_is_no_share_is_left_out_and_told_and_keeps_no_minute_waiting(value: bytes) -> None:
    store = MinuteStore()
    merger = owner(store)
    store.take(record_keys.part("flights", FIRST, 1), value)
    for minute in (FIRST, FIRST + 1):
        store.take(record_keys.part("flights", minute, 0), minute_share(minute))
    close(store, FIRST + 1)
    follow(store, merger.merge("flights"))
    assert store.minutes["flights"].keys() == {FIRST, FIRST + 1}
    assert list(merger.unreadable) == [record_keys.part("flights", FIRST, 1)]
    close(store, FIRST + 200)  # the shares are let go
    follow(store, merger.merge("flights"))
    assert FIRST not in store.parts["flights"]


def test_a_minute_whose_heartbeat_was_told_before_it_came_is_judged_again() -> None:
    store, minutes = MinuteStore(), range(FIRST, FIRST + 3)
    merger = owner(store)
    store.take(record_keys.part("flights", FIRST, 0), minute_share(FIRST))
    close(store, FIRST + 2, gaps={str(minute): 60 for minute in minutes})
    merger.merge("flights")
    assert [store.states["flights"].get(minute) for minute in minutes] == ["down", None, "down"]
    close(store, FIRST + 2, gaps={str(FIRST): 1})
    assert record_keys.minute("flights", FIRST) in dict(merger.merge("flights"))
    assert store.states["flights"][FIRST] == "up"
    assert not merger.merge("flights")
    store.take(record_keys.part("flights", FIRST, 0), minute_share(FIRST, at_us=(FIRST + 9) * 60_000_000))
    merger.merge("flights")
    assert store.states["flights"][FIRST] == "up", "an amendment brings the gap not back"


def test_after_a_restart_a_share_of_a_clock_that_is_behind_is_merged() -> None:
    store = MinuteStore()
    at_us = (FIRST + 6) * 60_000_000
    store.take(record_keys.part("flights", FIRST, 0), minute_share(FIRST, at_us=at_us))
    close(store, FIRST)
    records = owner(store).merge("flights")
    restarted_store = MinuteStore()
    follow(restarted_store, records)
    close(restarted_store, FIRST)
    restarted_store.take(record_keys.part("flights", FIRST, 0), minute_share(FIRST, at_us=at_us))
    assert not owner(restarted_store).merge("flights")
    late_share = minute_share(FIRST, lost_count=2, at_us=at_us - 500_000)
    restarted_store.take(record_keys.part("flights", FIRST, 0), late_share)
    owner(restarted_store).merge("flights")
    assert restarted_store.losses["flights"] == {FIRST: 2}
