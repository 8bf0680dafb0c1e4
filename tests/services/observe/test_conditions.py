"""What is wrong now is found wherever it shows, and is over when it is over."""

from typing import Any

import orjson

from hifi_observe import keys
from hifi_observe.alarm import Key
from hifi_observe.availability import Limits
from hifi_observe.conditions import RECENT_MINUTES, Thresholds, holding
from hifi_observe.store import Store

MINUTE = 28_333_333
MINUTE_US = 60_000_000
NOW_US = (MINUTE + 66) * MINUTE_US
THRESHOLDS = Thresholds(15, 10)


def merged(store: Store, minute: int, at_us: int, lost: int) -> None:
    hops = [{"hop": "egest", "destination": "crm", "lost": lost}]
    causes = ["loss"] if lost else []
    value = {
        "state": "down" if lost else "up", "at_us": at_us, "lost": lost, "causes": causes, "hops": hops
    }  # fmt: skip
    store.take(keys.minute("flights", minute), orjson.dumps(value))


def look(store: Store, now_us: int = NOW_US) -> dict[Key, str]:
    limits = {"flights": Limits(1_000_000, 0)}
    return holding(store, limits, {}, now_us, 1, THRESHOLDS)


def closed(minute: int) -> Store:
    store = Store()
    marker: dict[str, Any] = {"minute": minute, "gaps": {}}
    store.take(keys.closed(0), orjson.dumps(marker))
    return store


def test_a_loss_that_shows_in_an_older_minute_is_told_for_a_while() -> None:
    store = closed(MINUTE + 60)
    merged(store, MINUTE, (MINUTE + 6) * MINUTE_US, 0)
    assert ("loss", "flights", "") not in look(store)
    merged(store, MINUTE, NOW_US, 2)
    assert "lost 2 events at egest crm" in look(store)["loss", "flights", ""]
    assert look(store, NOW_US + (RECENT_MINUTES + 1) * MINUTE_US) == {}


def test_a_loss_that_was_told_is_not_told_again_when_its_minute_is_amended_otherwise() -> None:
    store = closed(MINUTE + 60)
    merged(store, MINUTE, (MINUTE + 6) * MINUTE_US, 2)
    merged(store, MINUTE, NOW_US, 2)
    assert look(store) == {}
    merged(store, MINUTE, NOW_US, 3)
    assert ("loss", "flights", "") in look(store)


def test_of_many_minutes_that_close_at_once_none_goes_unseen() -> None:
    store = closed(MINUTE + 60)
    for minute in range(MINUTE, MINUTE + 61):
        merged(store, minute, NOW_US, 1 if minute == MINUTE else 0)
    assert ("loss", "flights", "") in look(store)
