"""Momentary figures of many pipes are published in pieces, and are the same to whoever reads them."""

from typing import Any

import orjson
import pytest

from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.live import figures
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.figures_pieces import pieces_of
from hifi_observe.minutes.minute_store import MinuteStore


def published(at: int, pipes: int) -> dict[str, Any]:
    pipe_names = [f"p{number}" for number in range(pipes)]
    return figures.of_ledger(PartitionLedger(0, ClosingRules()), at, {}) | {
        "counts": {name: {"raw": at} for name in pipe_names},
        "successes": [[name, "crm", at] for name in pipe_names],
        "steps": {"p0": {"pipe": "p1"}},
    }


def take(
    store: MinuteStore, figures_json: dict[str, Any], most_pipes: int, *, lost: int | None = None
) -> int:
    pieces = pieces_of(figures_json, most_pipes)
    for number, piece in reversed([*enumerate(pieces)]):
        if number != lost:
            store.take(record_keys.live(0, number), orjson.dumps(piece))
    return len(pieces)


@pytest.mark.parametrize(("most_pipes", "expected"), [(500, 1), (7, 1), (3, 3), (1, 7)])
def test_all_pieces_together_are_the_figures(most_pipes: int, expected: int) -> None:
    store = MinuteStore()
    assert take(store, published(1, 7), most_pipes) == expected
    assert take(store, published(2, 7), most_pipes) == expected
    for figures_json, at in ((store.live[0], 2), (store.previous_live[0], 1)):
        whole = orjson.loads(orjson.dumps(published(at, 7)))
        assert {name: figures_json[name] for name in whole} == whole


def test_a_piece_of_another_publication_is_left_out() -> None:
    store = MinuteStore()
    store.take(record_keys.live(0, 1), orjson.dumps(pieces_of(published(1, 4), 2)[1]))
    take(store, published(2, 4), 2, lost=1)
    assert sorted(store.live[0]["counts"]) == ["p0", "p1"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"live/0", b"5"),
        (b"live/0", b"{}"),
        (b"live/x", b"{}"),
        (b"live/0/1", b"[]"),
        (b"closed/0", b"{}"),
        (b"closed/0", b'{"minute":"x","through":{},"restart":{}}'),
        (b"open/0", b"[]"),
        (b"open/0", b'{"rows":[{"pipe":"p"}]}'),
        (b"minute/p/7", b'{"state":"down","causes":["lag"],"lost":"x","at_us":1}'),
        (b"minute/p/7", b"{"),
        (b"day/p/7", b"5"),
        (b"usage/p/7", b"5"),
    ],
)
def test_a_record_of_another_program_is_refused_and_changes_nothing(key: bytes, value: bytes) -> None:
    store = MinuteStore()
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        store.take(key, value)
    assert not store.live
    assert not store.markers
    assert not store.states["p"]
