"""What became of an event is told while its minute is open, from what the ledger has read so far, and said to be so."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from tests.support.observe.simulated_mesh import TOPICS, Row, identity

from hifi.record.fields import packed
from hifi.runtime.http.problem import Problem
from hifi_observe.kafka import record_lookup
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.record_lookup import LookupSlots
from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.open_minute import OpenMinuteReporter
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings
from hifi_observe.web import minute_answers
from hifi_observe.web.minute_answers import MinuteAnswers
from hifi_observe.web.record_answers import RecordAnswers

EPOCH = "0" * 15 + "a"
MINUTE = 28_333_333
RECEIPT = {
    "hifi_destination": b"crm",
    "hifi_outcome": b"delivered",
    "hifi_sent": b"%d" % (MINUTE * 60_000_000 + 1000),
    "hifi_answered": b"%d" % (MINUTE * 60_000_000 + 2000),
}
MERGED = {
    "pipe": "flights",
    "minute": MINUTE,
    "state": "up",
    "in": 3,
    "delivered": 3,
    "dead": 0,
    "lost": 0,
    "late": 0,
    "at_us": 1,
    "causes": [],
    "offsets": {"0": {"raw": [0, 2]}},
}


class PipesDouble:
    """One pipe, declared two minutes before."""

    def first_minute(self, _name: str) -> int:
        return MINUTE - 2

    def hides_id(self, _name: str) -> bool:
        return False

    def destinations(self) -> dict[str, set[str]]:
        return {"flights": {"crm", "audit"}}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MinuteStore:
    """Minutes as observe publishes them in the middle of `MINUTE`."""
    monkeypatch.setattr(minute_answers, "now_us", lambda: MINUTE * 60_000_000 + 30_000_000)
    store = MinuteStore()
    store.take(b"closed/0", orjson.dumps({"minute": MINUTE - 6}))
    return store


@pytest.fixture
def minutes(store: MinuteStore) -> MinuteAnswers:
    return MinuteAnswers(
        store, cast(ObservedPipes, PipesDouble()), cast(ObservedPartitions, SimpleNamespace(count=1))
    )


def row(offset: int, **extra_fields: bytes) -> Row:
    fields = identity(f"{EPOCH}:{offset}".encode(), MINUTE) | extra_fields
    return Row(offset, MINUTE * 60_000, packed(fields))


def publish(store: MinuteStore) -> None:
    """Three events have come in; two of them were enriched, and one was delivered."""
    ledger = PartitionLedger(0, ClosingRules())
    ledger.positions = dict.fromkeys(TOPICS, 0)
    ledger.take("raw", [row(offset) for offset in range(3)])
    ledger.take("normalized", [row(offset) for offset in range(3)])
    ledger.take("enriched", [row(offset, hifi_to=b"crm") for offset in range(2)])
    ledger.take("receipts", [row(0, **RECEIPT)])
    rows = OpenMinuteReporter().report(ledger.pipe_minutes.values())
    store.take(b"open/0", orjson.dumps({"rows": rows}))


def test_an_open_minute_has_the_offsets_that_the_ledger_has_read(
    store: MinuteStore, minutes: MinuteAnswers
) -> None:
    publish(store)
    assert minutes.so_far("flights", str(MINUTE)) == {
        "pipe": "flights",
        "minute": MINUTE,
        "state": "provisional",
        "offsets": {"0": {"raw": [0, 2], "normalized": [0, 2], "enriched": [0, 1], "receipts": [0, 0]}},
    }


def test_a_closed_minute_stays_what_was_judged(store: MinuteStore, minutes: MinuteAnswers) -> None:
    publish(store)
    store.take(f"minute/flights/{MINUTE}".encode(), orjson.dumps(MERGED))
    publish(store)  # a report that was on its way
    assert minutes.so_far("flights", str(MINUTE)) == MERGED


def test_an_open_minute_without_events_is_there_and_one_that_has_not_begun_is_not(
    minutes: MinuteAnswers,
) -> None:
    assert minutes.so_far("flights", str(MINUTE))["offsets"] == {}
    for minute in (MINUTE + 1, MINUTE - 3, MINUTE - 6):
        with pytest.raises(Problem, match="has not begun, or is no longer kept") as refusal:
            minutes.so_far("flights", str(minute))
        assert refusal.value.status == 404
    with pytest.raises(Problem, match="not closed yet"):
        minutes.merged("flights", str(MINUTE))


async def test_the_answer_says_whether_more_may_come(
    store: MinuteStore, minutes: MinuteAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store)

    async def outcomes(
        _settings: Any, _topics: Any, merged: Mapping[str, Any], _ce_id: str
    ) -> list[dict[str, Any]]:
        """The event, as far as the offsets of the minute reach."""
        return [{"wanted": ["crm"] if "enriched" in merged["offsets"]["0"] else None, "outcomes": []}]

    monkeypatch.setattr(record_lookup, "outcomes", outcomes)
    pipes, partitions = cast(ObservedPipes, PipesDouble()), cast(ObservedPartitions, SimpleNamespace(count=1))
    records = RecordAnswers(ObserveSettings(), pipes, partitions, LookupSlots())
    answer = await records.event(minutes.so_far("flights", str(MINUTE)), "id-1")
    assert (answer["provisional"], answer["events"]) == (
        True,
        [{"wanted": ["crm"], "not_wanted": ["audit"], "outcomes": []}],
    )
    store.take(f"minute/flights/{MINUTE}".encode(), orjson.dumps(MERGED))
    answer = await records.event(minutes.so_far("flights", str(MINUTE)), "id-1")
    assert (answer["provisional"], answer["events"]) == (
        False,
        [{"wanted": None, "not_wanted": [], "outcomes": []}],
    )
