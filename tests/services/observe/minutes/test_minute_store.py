"""What an earlier owner writes after its successor replaces nothing, and is replaced on the topic."""

import orjson

from hifi_observe.minutes import record_keys
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.terms import with_term

MINUTE = 27_000_000
SHARE, MERGED = record_keys.part("flights", MINUTE, 0), record_keys.minute("flights", MINUTE)
FIGURES = dict.fromkeys(("in", "delivered", "dead", "lost", "late", "duplicates", "filtered", "backfill"), 0)


def merged(term: int, lost: int) -> bytes:
    figures = FIGURES | {
        "lost": lost,
        "state": "up",
        "causes": [],
        "at_us": 1,
        "waiting": 0,
        "parked": 0,
        "bytes": 0,
    }
    return orjson.dumps(with_term(term, figures))


def share(term: int, number: int) -> bytes:
    return orjson.dumps(with_term(term, {"number": number}))


def test_a_share_of_an_earlier_owner_is_replaced_by_that_of_its_successor() -> None:
    store = MinuteStore()
    store.take(SHARE, share(7, 1))
    store.take(SHARE, share(8, 2))
    store.changed["flights"].clear()
    store.take(SHARE, share(7, 3))
    assert store.parts["flights"][MINUTE][0] == share(8, 2)
    assert not store.changed["flights"]
    assert [(key, orjson.dumps(value)) for key, value in store.take_overtaken("flights")] == [
        (SHARE, share(8, 2))
    ]
    assert not store.take_overtaken("flights")


def test_a_share_that_was_written_again_does_not_undo_its_amendment() -> None:
    store = MinuteStore()
    first, amended = (
        orjson.dumps(with_term(8, {"pipe_minute": {"version": version}})) for version in (9, 10)
    )
    for value in (first, amended, first):
        store.take(SHARE, value)
    assert store.parts["flights"][MINUTE][0] == amended
    assert store.take_overtaken("flights") == [(SHARE, orjson.loads(amended))]
    store.take(SHARE, None)
    assert not store.parts["flights"], "a deletion counts"


def test_the_newest_term_is_that_of_any_record_so_far() -> None:
    store = MinuteStore()
    store.take(record_keys.closed(0), orjson.dumps(with_term(8, {"minute": MINUTE, "gaps": {}})))
    store.take(SHARE, share(9, 1))
    store.take(SHARE, None)
    assert store.newest_term == 9
    store.take(MERGED, merged(11, 0))
    store.take(MERGED, merged(7, 0))
    assert store.newest_term == 11


def test_a_merged_minute_of_an_earlier_owner_is_replaced_by_that_of_its_successor() -> None:
    store = MinuteStore()
    store.take(MERGED, merged(8, 0))
    store.take(MERGED, merged(7, 5))
    assert store.minute("flights", MINUTE) == orjson.loads(merged(0, 0))
    assert not store.losses["flights"]
    store.take(MERGED, merged(8, 0))
    assert not store.take_overtaken("flights"), "it was written again"
    store.take(MERGED, merged(0, 1))
    assert store.losses["flights"] == {MINUTE: 1}, "a release without terms"


def test_a_marker_of_an_earlier_owner_counts_no_more() -> None:
    store, key = MinuteStore(), record_keys.closed(0)
    store.take(key, orjson.dumps(with_term(8, {"minute": MINUTE, "gaps": {str(MINUTE): 0}})))
    store.take(key, orjson.dumps(with_term(7, {"minute": MINUTE + 1, "gaps": {str(MINUTE): 60}})))
    assert store.closed_minute(1) == MINUTE
    assert store.gaps[MINUTE] == {0: 0}
