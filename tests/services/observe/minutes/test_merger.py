"""What the owner of a pipe writes: what was let go does not come back, and days keep what they counted."""

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


def part(minute: int, *, lost: int = 0, at_us: int = 0) -> bytes:
    pipe_minute = PipeMinute("flights", minute)
    pipe_minute.measure("end.accepted/crm", [1000])
    ids = IdSet()
    ids.add("a" * 16, list(range(lost)))
    left = [Unresolved("normalize", "", "lost", ids)] if lost else []
    minute_result = MinuteResult(pipe_minute, Counter({("ingest", "", "in"): 10}), left)
    return orjson.dumps(dump(minute_result, 0, at_us or (minute + 6) * 60_000_000))


def close(store: MinuteStore, minute: int, **more: object) -> None:
    store.take(record_keys.closed(0), orjson.dumps({"minute": minute, "gaps": {}, **more}))


def owner(store: MinuteStore, keep_h: float = 48, first_minute: int = 0) -> MinuteMerger:
    return MinuteMerger(
        store, 1, {"flights": LIMITS}.get, lambda _: first_minute, keep_h=keep_h, amend_s=3600
    )


def follow(store: MinuteStore, records: list[tuple[bytes, dict[str, Any] | None]]) -> None:
    """What another instance reads of what the owner wrote."""
    for key, value in records:
        store.take(key, None if value is None else orjson.dumps(value))


def test_shares_that_were_let_go_are_not_merged_after_a_restart_and_the_day_stays() -> None:
    store = MinuteStore()
    old = record_keys.part("flights", FIRST, 0)
    store.take(old, part(FIRST))
    store.take(
        record_keys.day("flights", DAY), orjson.dumps(DayRecord((StateSpan(0, 1, MinuteState("up")),)).dump())
    )
    store.take(old, None)
    close(store, FIRST + 3 * DAY_MINUTES)
    assert not store.changed["flights"]
    records = dict(owner(store, first_minute=FIRST + 3 * DAY_MINUTES).merge("flights"))
    assert record_keys.minute("flights", FIRST) not in records
    assert record_keys.day("flights", DAY) not in records
    assert store.days["flights"][DAY].by_state() == {"up": 1, "down": 0, "unknown": 0}


def test_an_instance_that_does_not_own_a_pipe_forgets_what_changed_with_the_shares() -> None:
    mine, other = MinuteStore(), MinuteStore()
    owning = owner(mine, keep_h=2)
    for minute in range(FIRST, FIRST + 300):
        for store in (mine, other):
            store.take(record_keys.part("flights", minute, 0), part(minute))
            close(store, minute)
        follow(other, owning.merge("flights"))
    assert not mine.changed["flights"]
    assert len(other.changed["flights"]) <= 80


def test_a_share_older_than_what_is_kept_is_not_merged() -> None:
    store = MinuteStore()
    store.take(record_keys.part("flights", FIRST, 0), part(FIRST, lost=1))
    close(store, FIRST + 3 * DAY_MINUTES)
    assert record_keys.minute("flights", FIRST) not in dict(owner(store).merge("flights"))
    assert not store.changed["flights"]


def test_a_day_counts_each_minute_once_when_minutes_are_let_go_before_its_end() -> None:
    store = MinuteStore()
    owning = owner(store, keep_h=1)
    for minute in range(FIRST, FIRST + 300):
        store.take(record_keys.part("flights", minute, 0), part(minute))
        close(store, minute)
        owning.merge("flights")
    assert store.days["flights"][DAY].by_state() == {"up": 300, "down": 0, "unknown": 0}


def test_a_minute_that_turns_out_down_after_its_day_moves_in_that_day() -> None:
    store = MinuteStore()
    owning = owner(store)
    for minute in range(FIRST, FIRST + DAY_MINUTES):
        store.take(record_keys.part("flights", minute, 0), part(minute))
        close(store, minute)
        owning.merge("flights")
    late = FIRST + DAY_MINUTES - 1
    store.take(record_keys.part("flights", late, 0), part(late, lost=3, at_us=(late + 60) * 60_000_000))
    close(store, late + 50)
    owning.merge("flights")
    assert store.days["flights"][DAY].by_state() == {"up": DAY_MINUTES - 1, "down": 1, "unknown": 0}


def test_a_minute_is_down_by_the_failed_answers_of_all_partitions_together() -> None:
    store = MinuteStore()
    owning = MinuteMerger(store, 2, {"flights": LIMITS}.get, lambda _: 0, keep_h=48, amend_s=3600)
    for failed, state in ((2, "up"), (3, "down")):
        minute = FIRST + failed
        close(store, minute, answers={str(minute): [failed, 100]})
        store.take(
            record_keys.closed(1), orjson.dumps({"minute": minute, "answers": {str(minute): [0, 150]}})
        )
        store.take(record_keys.part("flights", minute, 0), part(minute))
        merged = dict(owning.merge("flights"))[record_keys.minute("flights", minute)]
        assert merged is not None
        assert (merged["state"], merged["causes"]) == (state, ["ingest"] if state == "down" else [])


@pytest.mark.parametrize("ingest", [{"gaps": {str(FIRST): 30}}, {"answers": {str(FIRST): [5, 10]}}])
def test_a_minute_that_ingest_failed_is_still_down_when_it_is_amended_after_a_restart(
    ingest: dict[str, Any],
) -> None:
    store = MinuteStore()
    share = record_keys.part("flights", FIRST, 0)
    store.take(share, part(FIRST))
    close(store, FIRST, **ingest)
    written = owner(store).merge("flights")
    before = dict(written)[record_keys.minute("flights", FIRST)]
    assert before is not None
    assert (before["state"], before["causes"]) == ("down", ["ingest"])
    # Of the markers the compacted topic has the newest alone; it does not name the minute.
    after = MinuteStore()
    follow(after, written)
    close(after, FIRST + 10)
    for turn in (1, 2):
        after.take(share, part(FIRST, at_us=(FIRST + 20 + turn) * 60_000_000))
        merged = dict(owner(after).merge("flights"))[record_keys.minute("flights", FIRST)]
        assert merged is not None
        assert merged["at_us"] > before["at_us"]
        assert (merged["state"], merged["causes"]) == ("down", ["ingest"])
        assert after.states["flights"][FIRST] == "down"


def test_a_minute_in_which_a_paused_pipe_refused_requests_says_so_and_is_not_down() -> None:
    store = MinuteStore()
    paused = {str(FIRST): {"flights": 40, "orders": 2}}
    close(store, FIRST, gaps={str(FIRST): 0}, answers={str(FIRST): [0, 2]}, paused=paused)
    (_, merged), *_ = owner(store).merge("flights")
    assert merged is not None
    assert (merged["refused_paused"], merged["state"], merged["causes"]) == (40, "up", [])


def test_a_pipe_has_no_minutes_before_the_one_in_which_it_was_declared() -> None:
    store, started = MinuteStore(), FIRST + 6
    owning = owner(store, first_minute=started)
    for minute in range(FIRST, started + 2):
        close(store, minute)
        owning.merge("flights")
    assert sorted(store.minutes["flights"]) == [started, started + 1]


def test_events_of_a_minute_before_the_declaration_are_judged() -> None:
    store, started = MinuteStore(), FIRST + 6
    owning = owner(store, first_minute=started)
    store.take(record_keys.part("flights", started - 1, 0), part(started - 1))
    close(store, started - 1)
    owning.merge("flights")
    assert store.states["flights"] == {started - 1: "up"}


@pytest.mark.parametrize("keep_h", [1, 48])
@pytest.mark.parametrize("seed", range(5))
def test_days_have_the_states_and_counts_of_their_minutes_when_these_are_no_longer_kept(
    seed: int, keep_h: float
) -> None:
    draw = random.Random(seed)
    store, other = MinuteStore(), MinuteStore()
    owning = owner(store, keep_h=keep_h)
    lost: dict[int, int] = {}
    at_us: dict[int, int] = {}

    def write(minute: int) -> None:
        lost[minute] = draw.choice([0, 0, 0, 1, 3])
        at_us[minute] = at_us.get(minute, (minute + 6) * 60_000_000) + 1
        share = part(minute, lost=lost[minute], at_us=at_us[minute])
        store.take(record_keys.part("flights", minute, 0), share)

    first = FIRST + DAY_MINUTES - 100
    for minute in range(first, first + 300):
        if draw.random() < 0.9 or minute == first:
            write(minute)
        if draw.random() < 0.2:
            write(draw.choice([earlier for earlier in lost if earlier > minute - 50]))
        close(store, minute)
        follow(other, owning.merge("flights"))
    for kept in (store, other):
        days = kept.days["flights"]
        states = {
            number * DAY_MINUTES + minute: (state.state, "loss" in state.causes)
            for number in days
            for minute, state in days[number].states()
        }
        expected = {minute: ("down", True) if number else ("up", False) for minute, number in lost.items()}
        assert states == dict.fromkeys(range(first, first + 300), ("unknown", False)) | expected
        for number in (DAY, DAY + 1):
            of_day = [minute for minute in lost if minute // DAY_MINUTES == number]
            assert days[number].counts["in"] == 10 * len(of_day)
            assert days[number].counts["lost"] == sum(lost[minute] for minute in of_day)
        assert sorted(kept.ids["flights"]) == sorted(minute for minute, number in lost.items() if number)


def test_ids_keep_the_names_that_were_looked_up_and_are_gone_with_the_loss() -> None:
    store = MinuteStore()
    owning = owner(store)
    share, key = record_keys.part("flights", FIRST, 0), record_keys.ids("flights", FIRST)
    store.take(share, part(FIRST, lost=2))
    close(store, FIRST)
    written = NamedIds.load(dict(owning.merge("flights"))[key] or {})
    assert (written.lost_count, [event.sequence for event in written.lost], written.looked_up) == (
        2,
        [0, 1],
        False,
    )
    named = replace(
        written, names={event.identity: f"id-{event.sequence}" for event in written.lost}, looked_up=True
    )
    store.take(key, orjson.dumps(named.dump()))
    store.take(share, part(FIRST, lost=1, at_us=(FIRST + 20) * 60_000_000))
    amended = NamedIds.load(dict(owning.merge("flights"))[key] or {})
    assert (dict(amended.names), amended.looked_up) == ({f"{'a' * 16}:0": "id-0"}, True)
    store.take(share, part(FIRST, lost=0, at_us=(FIRST + 30) * 60_000_000))
    assert dict(owning.merge("flights"))[key] is None
    assert not store.ids["flights"]


def test_days_and_ids_are_deleted_after_a_year() -> None:
    store = MinuteStore()
    old = {record_keys.day("flights", DAY): DayRecord((StateSpan(0, 1, MinuteState("up")),)).dump()}
    old[record_keys.ids("flights", FIRST)] = NamedIds(lost_count=1).dump()
    old[record_keys.colours_day("flights", DAY)] = ColoursDay().dump()
    old[record_keys.colours_ids("flights", FIRST)] = {"log": NamedIds(lost_count=1).dump()}
    for key, value in old.items():
        store.take(key, orjson.dumps(value))
    owning = owner(store)
    close(store, FIRST + 400 * DAY_MINUTES)
    assert not old.keys() & dict(owning.merge("flights")).keys()
    close(store, FIRST + 401 * DAY_MINUTES)
    records = dict(owning.merge("flights"))
    assert {key: records[key] for key in old} == dict.fromkeys(old)
    assert DAY not in store.days["flights"]
    assert not store.ids["flights"]
    assert not store.colours_days["flights"]
    assert not store.colours_ids["flights"]


def share(minute: int, partition: int, *, state: str = "", at_us: int = 0) -> bytes:
    """Of ten events, one of which is unresolved in a state, if any."""
    pipe_minute = PipeMinute("flights", minute)
    ids = IdSet.of([("a" * 16, 1)])
    left = [Unresolved("retrier", "crm", state, ids)] if state else []
    pipe_minute.close({}, ids if state else IdSet(), {})
    minute_result = MinuteResult(pipe_minute, Counter({("ingest", "", "in"): 10}), left)
    return orjson.dumps(dump(minute_result, partition, at_us or (minute + 6) * 60_000_000))


@pytest.mark.parametrize(("state", "days"), [("", 0), ("lost", 7), ("parked", 31), ("waiting", 31)])
def test_a_share_is_kept_for_as_long_as_its_events_are_followed(state: str, days: int) -> None:
    store = MinuteStore()
    owning, key = owner(store), record_keys.part("flights", FIRST, 0)
    store.take(key, share(FIRST, 0, state=state))
    for after in (FIRST, FIRST + 60, FIRST + days * DAY_MINUTES + 30):
        close(store, after)
        assert key not in dict(owning.merge("flights"))
    close(store, FIRST + days * DAY_MINUTES + 90)
    assert dict(owning.merge("flights"))[key] is None
    assert not store.parts["flights"]


def test_a_minute_is_merged_of_all_its_shares_when_only_one_partition_amends_it_after_an_hour() -> None:
    store = MinuteStore()
    owning = MinuteMerger(store, 2, {"flights": LIMITS}.get, lambda _: 0, keep_h=48, amend_s=3600)
    store.take(record_keys.part("flights", FIRST, 0), share(FIRST, 0))
    store.take(record_keys.part("flights", FIRST, 1), share(FIRST, 1, state="waiting"))
    for after in (FIRST, FIRST + 200):
        for partition in (0, 1):
            store.take(record_keys.closed(partition), orjson.dumps({"minute": after}))
        owning.merge("flights")
    later = share(FIRST, 1, at_us=(FIRST + 200) * 60_000_000)
    store.take(record_keys.part("flights", FIRST, 1), later)
    merged = dict(owning.merge("flights"))[record_keys.minute("flights", FIRST)]
    assert merged is not None
    assert (merged["in"], merged["waiting"]) == (20, 0)
    assert not store.parts["flights"], "nobody needs them any more"


@pytest.mark.parametrize("stopped", [DAY_MINUTES, 3 * DAY_MINUTES, 7 * DAY_MINUTES - 10])
@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_each_minute_of_a_stop_of_up_to_a_week_is_down(stopped: int, restarts: int) -> None:
    store = MinuteStore()
    owning = owner(store, first_minute=FIRST - 10)
    for minute in range(FIRST - 10, FIRST):
        close(store, minute, gaps={str(minute): 1})
        owning.merge("flights")
    back = FIRST + stopped
    gaps = dict.fromkeys(map(str, range(FIRST, back)), 60)
    close(store, back, gaps=gaps | {str(back): 1})
    owning = owner(store, first_minute=FIRST - 10)
    while records := owning.merge("flights"):
        assert len(records) < 2 * DAY_MINUTES + 100, "others have their turn"
        if restarts:
            restarts -= 1
            owning = owner(store, first_minute=FIRST - 10)
    states = {
        number * DAY_MINUTES + minute: state.state
        for number, day in store.days["flights"].items()
        for minute, state in day.states()
    }
    assert [minute for minute, state in states.items() if state == "down"] == list(range(FIRST, back))
    assert states.keys() == set(range(FIRST - 10, back + 1))
    assert min(store.minutes["flights"]) >= back - 48 * 60, "minutes are kept for as long as before"


def test_a_stop_keeps_the_usage_of_its_minutes() -> None:
    store = MinuteStore()
    owning = owner(store)
    close(store, FIRST, gaps={str(FIRST): 1})
    owning.merge("flights")
    store.take(record_keys.part("flights", FIRST + 5, 0), part(FIRST + 5))
    close(store, FIRST + 5 * DAY_MINUTES)
    while owning.merge("flights"):
        pass
    assert store.days["flights"][DAY].counts["in"] == 10
    assert store.usage_days["flights"][DAY].usage.events == 10
