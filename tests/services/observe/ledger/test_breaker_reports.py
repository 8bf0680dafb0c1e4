"""A destination's breaker is shown as the receipts of every egest tell it, whichever partitions they are on."""

from typing import Any

import orjson
import pytest
from tests.support.observe.simulated_mesh import Row, identity

from hifi.record.fields import packed
from hifi.record.headers import BREAKER, DESTINATION, OUTCOME, REASON, STATUS
from hifi_observe.ledger.breaker_reports import NO_ANSWER, BreakerReports, ReceiptAnswer
from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.ledger.recent_activity import SAME_ANSWERS, FailureStreak, RecentActivity
from hifi_observe.ledger.stage import EventStage
from hifi_observe.live import figures
from hifi_observe.live.breaker_state import UNKNOWN, breaker_state
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.minute_store import MinuteStore

MINUTE = 28_333_333


class Receipts:
    """Receipts of egest in some partitions, as one instance of observe or several read them."""

    def __init__(self, partitions: int = 2) -> None:
        self.ledgers = [PartitionLedger(number, ClosingRules()) for number in range(partitions)]
        self.offsets = [0] * partitions

    def tell(self, partition: int, at_ms: int, outcome: str, reason: str = "", **options: Any) -> None:
        headers = identity(b"%016x:%d" % (10, self.offsets[partition]), MINUTE)
        headers |= {DESTINATION: b"crm", OUTCOME: outcome.encode()}
        if reason:
            headers[REASON] = reason.encode()
        if "status" in options:
            headers[STATUS] = b"%d" % options["status"]
        if "breaker" in options:
            headers[BREAKER] = options["breaker"].encode()
        self.ledgers[partition].take("receipts", [Row(self.offsets[partition], at_ms, packed(headers))])
        self.offsets[partition] += 1

    def delivered(self, partition: int, at_ms: int, **options: Any) -> None:
        self.tell(partition, at_ms, "delivered", status=200, **options)

    def failed(self, partition: int, at_ms: int, status: int = 503, **options: Any) -> None:
        self.tell(partition, at_ms, "retry", f"status-{status}", status=status, **options)

    def refused(self, partition: int, at_ms: int, **options: Any) -> None:
        self.tell(partition, at_ms, "retry", "breaker-open", **options)

    @property
    def minute_store(self) -> MinuteStore:
        store = MinuteStore()
        for number, ledger in enumerate(self.ledgers):
            store.take(record_keys.live(number), orjson.dumps(figures.of_ledger(ledger, 1, {})))
        return store

    @property
    def breaker(self) -> dict[str, Any]:
        view: dict[str, Any] = {**figures.breakers_of("flights", ["crm"], self.minute_store.live)["crm"]}
        return view

    @property
    def failing(self) -> list[dict[str, Any]]:
        reports: list[dict[str, Any]] = figures.of_pipe("flights", self.minute_store.live, {})["failing"]
        return reports


def test_it_is_unknown_until_a_receipt_tells() -> None:
    receipts = Receipts()
    assert receipts.breaker["state"] == UNKNOWN
    receipts.tell(0, 1, "duplicate")
    receipts.tell(0, 2, "retry", "not-in-time")
    assert receipts.breaker["state"] == UNKNOWN
    receipts.delivered(0, 3)
    assert receipts.breaker == {
        "state": "closed", "since_ms": None, "answer": None, "seen_ms": 3, "open_partitions": 0,
        "partitions": 1,
    }  # fmt: skip


def test_it_opens_is_probed_and_closes_with_its_failing_answer() -> None:
    receipts = Receipts(1)
    receipts.failed(0, 10)
    assert receipts.breaker["state"] == "closed"
    receipts.failed(0, 11, breaker="open:a")
    receipts.refused(0, 12, breaker="open:a")
    assert {**receipts.breaker, "partitions": 0} == {
        "state": "open", "since_ms": 11, "answer": "503", "seen_ms": 12, "open_partitions": 1, "partitions": 0,
    }  # fmt: skip
    receipts.refused(0, 13, breaker="half-open:a")
    assert (receipts.breaker["state"], receipts.breaker["since_ms"]) == ("half-open", 11)
    receipts.tell(0, 14, "retry", "timeout", breaker="open:a")
    assert (receipts.breaker["state"], receipts.breaker["answer"]) == ("open", "timeout")
    receipts.delivered(0, 15, breaker="open:a")
    assert receipts.breaker["state"] == "open", "a request from before it opened"
    receipts.delivered(0, 16, breaker="closed:a")
    assert (receipts.breaker["state"], receipts.breaker["answer"]) == ("closed", None)


def test_an_event_that_the_destination_refuses_is_not_its_failing_answer() -> None:
    receipts = Receipts(1)
    receipts.failed(0, 1, breaker="open:a")
    receipts.tell(0, 2, "dead-letter", "status-400", status=400, breaker="open:a")
    assert receipts.breaker["answer"] == "503"


def test_an_instance_that_closed_it_on_one_partition_has_it_open_on_none() -> None:
    receipts = Receipts()
    receipts.failed(0, 10, breaker="open:a")
    receipts.refused(1, 11, breaker="open:a")
    assert receipts.breaker["open_partitions"] == 2
    assert receipts.breaker["answer"] == "503", "told on the other partition"
    receipts.delivered(1, 20, breaker="closed:a")
    assert (receipts.breaker["state"], receipts.breaker["open_partitions"]) == ("closed", 0)
    receipts.refused(0, 30, breaker="open:a")
    assert (receipts.breaker["state"], receipts.breaker["since_ms"]) == ("open", 20), "not since 10"


def test_an_instance_with_an_open_breaker_is_shown_beside_one_with_a_closed_one() -> None:
    receipts = Receipts(3)
    receipts.failed(0, 10, breaker="open:a")
    receipts.delivered(1, 20, breaker="closed:b")
    receipts.delivered(2, 21)
    breaker = receipts.breaker
    assert (breaker["state"], breaker["open_partitions"], breaker["partitions"]) == ("open", 1, 3)


def test_the_next_owner_of_a_partition_says_how_its_own_breaker_is() -> None:
    receipts = Receipts(1)
    receipts.failed(0, 10, breaker="open:a")
    receipts.delivered(0, 20)
    assert receipts.breaker["state"] == "closed"
    receipts.failed(0, 30, breaker="open:b")
    assert (receipts.breaker["state"], receipts.breaker["since_ms"]) == ("open", 30)


def test_receipts_of_an_egest_that_names_no_breaker_are_read_by_their_reason() -> None:
    receipts = Receipts(1)
    receipts.failed(0, 10)
    receipts.refused(0, 11)
    receipts.failed(0, 12)
    assert (receipts.breaker["state"], receipts.breaker["answer"]) == ("open", "503"), "a probe that failed"
    receipts.delivered(0, 13)
    assert receipts.breaker["state"] == "closed"


def test_what_is_kept_does_not_grow_with_instances_or_destinations(monkeypatch: pytest.MonkeyPatch) -> None:
    breaker_reports = BreakerReports()
    for number in range(1000):
        breaker_reports.add("retry", ReceiptAnswer(breaker=b"open:%d" % number), number)
    assert len(breaker_reports.dump()) <= 8
    assert breaker_state([breaker_reports.dump()])["seen_ms"] == 999
    monkeypatch.setattr("hifi_observe.ledger.recent_activity._DESTINATIONS", 10)
    live = RecentActivity()
    for number in range(1000):
        live.breaker("flights", EventStage("delivered", f"d{number}"), NO_ANSWER, number)
    assert len(live.breakers) == 10


def test_a_run_of_failures_is_counted_over_all_partitions() -> None:
    receipts = Receipts(3)
    for at_ms in range(12):
        receipts.failed(at_ms % 3, at_ms)
    assert receipts.failing == [{"destination": "crm", "reason": "503", "in_a_row": 12, "since_ms": 0}]


def test_another_answer_on_any_partition_ends_a_run() -> None:
    receipts = Receipts()
    for at_ms in range(6):
        receipts.failed(0, at_ms)
    receipts.failed(1, 6, 500)
    for at_ms in range(7, 11):
        receipts.failed(0, at_ms)
    (report,) = receipts.failing
    assert (report["reason"], report["in_a_row"], report["since_ms"]) == ("503", 4, 7)
    receipts.failed(1, 11)
    (report,) = receipts.failing
    assert (report["reason"], report["in_a_row"], report["since_ms"]) == ("503", 5, 7)


def test_a_success_on_another_partition_ends_the_part_of_a_run_before_it() -> None:
    receipts = Receipts()
    for at_ms in (*range(8), *range(20, 25)):
        receipts.failed(0, at_ms)
    receipts.delivered(1, 10)
    (report,) = receipts.failing
    assert (report["in_a_row"], report["since_ms"]) == (5, 20)


def test_refusals_of_an_open_breaker_do_not_hide_the_failing_answer_behind_it() -> None:
    receipts = Receipts()
    for at_ms in range(0, 40, 4):
        receipts.failed(0, at_ms)  # the probes, one partition's
        for delay_ms in (1, 2):
            receipts.refused(0, at_ms + delay_ms)
            receipts.refused(1, at_ms + delay_ms)
    (report,) = receipts.failing
    assert report["reason"] == "503"
    assert report["in_a_row"] >= SAME_ANSWERS


def test_what_says_nothing_of_the_destination_ends_no_run() -> None:
    receipts = Receipts(1)
    for at_ms in range(12):
        receipts.failed(0, at_ms)
        receipts.tell(0, at_ms, "duplicate")
    assert receipts.failing[0]["in_a_row"] == 12


def test_a_streak_of_another_version_is_ignored() -> None:
    assert FailureStreak.load(["503", 12, 0, 9]) is None
