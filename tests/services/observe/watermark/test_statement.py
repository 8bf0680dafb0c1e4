"""The statement about a pipe and destination, and when it is unknown."""

from collections import Counter
from typing import Any

import orjson

from hifi.pipe.model import Timely
from hifi_observe.ledger.open_pieces import OpenAt
from hifi_observe.watermark.part import WatermarkPart
from hifi_observe.watermark.statement import Times, Watermark, expired, iso, microseconds, state, times_of
from hifi_observe.watermark.watermark_store import WatermarkStore

NOW_US = 1_700_000_000_123_456
S = 1_000_000


def part(**fields: Any) -> WatermarkPart:
    empty: WatermarkPart = {
        "by": "a",
        "monotonic": 0,
        "wall": NOW_US,
        "at": NOW_US,
        "set_back": 0,
        "reached": NOW_US - S,
        "unread": 0,
        "open": [],
        "failures": {},
        "late": {},
        "event_times": {"p": (NOW_US - 2 * S, NOW_US - 2 * S)},
        "event_late": {},
    }
    return empty | fields  # type: ignore[return-value] # of a TypedDict and a dict


def stated(
    *parts: WatermarkPart,
    open_at: OpenAt | None = None,
    published: Times | None = None,
    now_us: int | None = NOW_US,
    timely: Timely | None = None,
    declared_at: int = -1,
) -> Watermark:
    published, parts_by_partition = published or Times(), dict(enumerate(parts))
    return state(
        "p", "d", open_at, parts_by_partition, 2, published, now_us, 0, timely or Timely(), declared_at
    )


def test_what_is_timely_is_declared() -> None:
    open_at = OpenAt(NOW_US - 60 * S, NOW_US - 60 * S, Counter(egest=7))
    failing_part = part(failures={"p": {"egest": (3, 100), "enrich": (1, 100)}})
    for timely, because in (
        (Timely(), ["the oldest open event is 60.0 s old (7 at egest)"]),
        (Timely(within=59.0), ["the oldest open event is 60.0 s old (7 at egest)"]),
        (Timely(within=61.0), []),
        (Timely(within=61.0, failures=0.03), []),
        (Timely(within=61.0, failures=0.02), ["3 % failed at egest in the last minute"]),
        (
            Timely(within=61.0, failures=0),
            ["3 % failed at egest in the last minute", "1 % failed at enrich in the last minute"],
        ),
    ):
        watermark = stated(failing_part, part(), open_at=open_at, timely=timely)
        assert watermark["because"] == because, timely
        assert watermark["verdict"] == ("degraded" if because else "current")


def test_times_are_exact_as_text() -> None:
    assert iso(NOW_US) == "2023-11-14T22:13:20.123456Z"
    assert microseconds(iso(NOW_US)) == NOW_US
    assert microseconds(None) == 0


def test_with_nothing_open_it_settles_with_the_partition_that_is_read_least() -> None:
    watermark = stated(part(), part(reached=NOW_US - 2 * S))
    assert watermark["settled_until"] == watermark["first_pass_until"] == iso(NOW_US - 2 * S)
    assert (watermark["verdict"], watermark["because"]) == ("current", [])
    assert watermark["valid_until"] == iso(NOW_US + 3 * S)


def test_what_waits_for_a_retry_holds_one_time_and_not_the_other() -> None:
    open_at = OpenAt(NOW_US - 60 * S, NOW_US - S, Counter(waiting=3, parked=2, egest=1))
    watermark = stated(part(), part(), open_at=open_at)
    assert watermark["settled_until"] == iso(NOW_US - 60 * S)
    assert watermark["first_pass_until"] == iso(NOW_US - S)
    assert watermark["open"] == {"in_flight": 1, "waiting": 3, "parked": 2, "services": {"egest": 1}}
    assert watermark["verdict"] == "degraded"
    assert watermark["because"] == [
        "3 waiting for a retry",
        "2 parked",
        "the oldest open event is 60.0 s old (1 at egest)",
    ]


def test_it_never_goes_back() -> None:
    watermark = stated(
        part(), part(), open_at=OpenAt(NOW_US - 9 * S, NOW_US - 9 * S), published=Times(NOW_US - 4 * S)
    )
    assert watermark["settled_until"] == watermark["first_pass_until"] == iso(NOW_US - 4 * S)


def test_a_partition_that_is_not_observed_or_not_read_makes_it_unknown() -> None:
    published = Times(NOW_US - 60 * S, NOW_US - 50 * S)
    for parts, reason in (
        ([part()], "not observed: partition 1"),
        ([part(), part(at=NOW_US - 4 * S)], "not observed: partition 1"),
        ([], "not observed: partitions 0, 1"),
        ([part(reached=0), part()], "not read up to its end yet: partition 0"),
        ([part(unread=7), part()], "7 records of raw were deleted before observe read them"),
    ):
        watermark = stated(*parts, published=published)
        assert (watermark["verdict"], watermark["because"][0]) == ("unknown", reason)
        assert watermark["settled_until"] == iso(published.settled_us)
        assert stated(*parts)["settled_until"] is None
    assert stated(part(), part(), now_us=None)["verdict"] == "unknown"


def test_a_new_destination_is_stated_once_every_part_was_made_by_one_who_knows_it() -> None:
    """A part of a release before does not tell; once something is published of the destination, it counts."""
    published = Times(NOW_US - 60 * S, NOW_US - 60 * S)
    for offsets, published_times, missing_partitions in (
        ((7, 6), Times(), "partition 1"),
        ((6, None), Times(), "partitions 0, 1"),
        ((6, 6), published, "partitions 0, 1"),
        ((None, 7), published, None),
        ((7, 8), Times(), None),
    ):
        parts = [part() if offset is None else part(pipes=offset) for offset in offsets]
        watermark = stated(*parts, published=published_times, declared_at=7)
        if missing_partitions is None:
            assert watermark["settled_until"] == iso(NOW_US - S)
        else:
            assert watermark["verdict"] == "unknown"
            assert watermark["because"] == [
                f"observe has not read yet that the destination is declared: {missing_partitions}"
            ]
            assert microseconds(watermark["settled_until"]) == published_times.settled_us


def test_a_frontier_that_stands_still_is_named() -> None:
    watermark = stated(part(), part(reached=NOW_US - 7 * S))
    assert (watermark["verdict"], watermark["because"]) == ("degraded", ["raw is read up to 7.0 s ago"])


def test_past_its_validity_it_says_unknown() -> None:
    watermark = stated(part(), part())
    assert expired(watermark, NOW_US + 3 * S) == watermark
    expired_statement = expired(watermark, NOW_US + 3 * S + 1)
    assert (expired_statement["verdict"], expired_statement["because"]) == (
        "unknown",
        ["observe has stated nothing for 3 s"],
    )


def test_after_the_clock_was_set_back_its_times_are_withheld_until_the_new_ones_have_come_as_far() -> None:
    published = Times(NOW_US + 9 * S, NOW_US + 9 * S)
    watermark = stated(part(), part(), published=published)
    assert watermark["settled_until"] is watermark["first_pass_until"] is None
    assert watermark["verdict"] == "unknown"
    # The clock is past it again, but what was acknowledged until then is not settled.
    later_us = NOW_US + 10 * S
    times = times_of(orjson.loads(orjson.dumps(watermark)))
    assert times == published._replace(withheld=True)
    new_parts = [part(at=later_us, reached=later_us - 2 * S)] * 2
    assert stated(*new_parts, published=times, now_us=later_us)["settled_until"] is None
    later_parts = [part(at=later_us, reached=later_us - S)] * 2
    watermark = stated(*later_parts, published=times, now_us=later_us)
    assert watermark["settled_until"] == iso(later_us - S)
    assert watermark["verdict"] == "current"


def test_failures_and_late_events_are_of_all_partitions() -> None:
    late_events = {"p": {"events": 2, "oldest_us": 1_500_000, "ids": ["e:1", "e:2"]}}
    watermark = stated(
        part(failures={"p": {"egest": (1, 9)}}, late=late_events),
        part(failures={"p": {"egest": (0, 1)}, "q": {}}),
    )
    assert watermark["failures_1m"] == {"egest": 0.1}
    assert (watermark["late_1m"], watermark["late_oldest_s"]) == (2, 1.5)
    assert watermark["late_ids"] == ["e:1", "e:2"]


def test_a_clock_that_was_set_back_withholds_all_statements_also_after_they_are_read_again() -> None:
    store = WatermarkStore("this")
    first_statement = stated(part(), part())
    store.take(first_statement)
    store.take_part(0, part())
    assert not store.published(("p", "d")).withheld
    store.take_part(0, part(set_back=1))
    published = store.published(("p", "d"))
    assert published.withheld
    withheld_statement = state("p", "d", None, {}, 2, published, NOW_US - 8 * S)
    store.take(withheld_statement)
    assert store.of(["p"], NOW_US - 8 * S) == [withheld_statement]
    assert withheld_statement["settled_until"] is None
    store.read(b"p/d", orjson.dumps(first_statement), store.writer.encode())
    assert store.of(["p"], NOW_US - 8 * S) == [withheld_statement]


def test_the_event_time_is_that_of_the_lowest_floor_or_of_the_oldest_open_event() -> None:
    lower_part = part(event_times={"p": (NOW_US - 9 * S, NOW_US - 5 * S)})
    watermark = stated(part(), lower_part)
    assert watermark["event_until"] == iso(NOW_US - 5 * S)
    assert watermark["event_as_of"] == iso(NOW_US - S)
    assert watermark["event_because"] == []
    open_at = OpenAt(NOW_US - S, NOW_US - S, event_us=NOW_US - 8 * S, late=3)
    watermark = stated(part(), lower_part, open_at=open_at)
    assert watermark["event_until"] == iso(NOW_US - 8 * S)
    assert watermark["event_late"]["open"] == 3


def test_an_event_time_that_cannot_be_stated_says_why_and_the_last_one_stands() -> None:
    published = Times(event_us=NOW_US - 7 * S, event_as_of_us=NOW_US - 6 * S)
    unknown_time = OpenAt(NOW_US - S, NOW_US - S, event_us=0)
    early_time = OpenAt(NOW_US - S, NOW_US - S, event_us=NOW_US - 8 * S)
    for parts, open_at, published_times, reason in (
        ([part()], None, published, "what is open is not known"),
        ([part(), part()], unknown_time, published, "events whose time is not known are open"),
        ([part(), part()], early_time, published, "an event with an earlier time, which arrived while"),
        ([part(), part(event_times={})], None, Times(), "no event has been read yet"),
        ([part(reached=NOW_US - 7 * S)] * 2, None, published, None),
    ):
        watermark = stated(*parts, open_at=open_at, published=published_times)
        if reason is not None:
            assert watermark["event_because"][0].startswith(reason)
        expected = (published_times.event_us, published_times.event_as_of_us)
        assert (microseconds(watermark["event_until"]), microseconds(watermark["event_as_of"])) == expected


def test_after_the_clock_was_set_back_the_event_time_is_withheld_until_it_is_as_of_later() -> None:
    published = Times(NOW_US - 9 * S, NOW_US - 9 * S, True, NOW_US - 7 * S, NOW_US + 9 * S, True)
    watermark = stated(part(), part(), published=published)
    assert watermark["settled_until"] == iso(NOW_US - S), "it has come as far again"
    assert watermark["event_until"] is watermark["event_as_of"] is None
    assert watermark["event_because"] == [f"a clock was set back, and is not at {iso(NOW_US + 9 * S)} yet"]
    times = times_of(orjson.loads(orjson.dumps(watermark)))
    assert times[2:] == (False, NOW_US - 7 * S, NOW_US + 9 * S, True)
    later_us = NOW_US + 20 * S
    new_parts = [part(at=later_us, reached=later_us - S)] * 2
    watermark = stated(*new_parts, published=times, now_us=later_us)
    assert (watermark["event_until"], watermark["withheld"]) == (iso(NOW_US - 2 * S), [])
    assert watermark["event_as_of"] == iso(later_us - S)


def test_events_that_are_late_by_their_event_time_are_of_all_partitions() -> None:
    late_events = {"p": {"events": 2, "by_us": 1_500_000, "newest": [["e:1", 1_500_000], ["e:2", 7_000]]}}
    watermark = stated(part(event_late=late_events), part(event_late=late_events))
    assert watermark["event_late"] == {
        "last_1m": 4,
        "by_s": 1.5,
        "open": 0,
        "newest": [{"event": "e:1", "by_s": 1.5}, {"event": "e:2", "by_s": 0.007}] * 2,
    }


def test_a_record_of_another_instance_that_is_older_changes_nothing() -> None:
    store = WatermarkStore("this")
    newer, older = stated(part(), part()), stated(part(), part(at=NOW_US - S), now_us=NOW_US - S)
    store.take(newer)
    store.read(b"p/d", orjson.dumps(older), b"another")
    assert store.of(["p"], NOW_US) == [newer]
    store.read(b"p/d", None, b"another")
    assert store.of(["p"], NOW_US) == []
