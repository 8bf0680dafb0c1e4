"""Figures by revision: counted by ledgers, added up over partitions and over restarts of their readers."""

from tests.support.observe.simulated_mesh import Row, identity

from hifi.control.revision_figures import RevisionFigures
from hifi.record.fields import packed
from hifi.record.headers import ANSWERED, DESTINATION, OUTCOME, REVISION, SENT, SERVICE
from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.ledger.recent_activity import RecentActivity
from hifi_observe.ledger.stage import EventStage
from hifi_observe.live import figures
from hifi_observe.live.revision_counts import RevisionCounts
from hifi_observe.minutes.availability import SloLimits

MINUTE = 28_000_000
START_MS = MINUTE * 60_000
LIMITS = {"flights": SloLimits(p95_us=1_000_000, loss=0)}


def row(offset: int, revision: int, **extra_fields: bytes) -> Row:
    fields = identity(b"%016x:%d" % (1, offset), MINUTE) | {REVISION: b"%d" % revision, **extra_fields}
    return Row(offset, START_MS, packed(fields))


def receipt(offset: int, revision: int, outcome: bytes, lag_us: int = 0) -> Row:
    at_us = b"%d" % (START_MS * 1000 + lag_us)
    receipt_fields = {OUTCOME: outcome, DESTINATION: b"crm", SENT: at_us, ANSWERED: at_us}
    return row(offset, revision, **receipt_fields)


def read_ledger() -> PartitionLedger:
    ledger = PartitionLedger(0, ClosingRules(settle_s=20, amend_s=100_000, follow_s=1_000_000))
    ledger.take("raw", [row(0, 1), row(1, 2), row(2, 1), row(3, 2)])
    ledger.take(
        "receipts",
        [
            receipt(0, 1, b"delivered"),
            receipt(1, 2, b"retry"),
            receipt(2, 1, b"filtered"),
            receipt(3, 2, b"delivered", lag_us=2_000_000),
        ],
    )
    dead_letter_fields = {DESTINATION: b"crm", SERVICE: b"egest"}
    ledger.take("dead-letter", [row(0, 2, **dead_letter_fields)])
    return ledger


def published(at_us: int, revisions: dict[str, dict[str, int]]) -> dict[str, object]:
    return {"at": at_us, "revisions": {"flights": revisions}}


def test_a_ledger_counts_each_revision_and_publishes_it_while_a_rollout_runs() -> None:
    ledger = read_ledger()
    lags = ledger.live.take_lags()
    figures.count_late(ledger, lags, LIMITS)
    assert figures.of_ledger(ledger, 5, {})["revisions"] == {}
    revisions = figures.of_ledger(ledger, 5, {}, rolling=["flights", "unknown"])["revisions"]
    counts = RevisionCounts()
    counts.step({0: published(1, {})}, ["flights"], 1)
    counts.step({0: published(2, revisions["flights"])}, ["flights"], 2)
    flights_figures = counts.get("flights")
    assert flights_figures is not None
    assert flights_figures.of(1) == RevisionFigures(accepted=2, delivered=1, filtered=1)
    assert flights_figures.of(2) == RevisionFigures(
        accepted=2, delivered=1, dead_letters=1, retries=1, late=1
    )


def test_the_revisions_that_had_events_last_are_kept() -> None:
    ledger = PartitionLedger(0, ClosingRules(settle_s=20, amend_s=100_000, follow_s=1_000_000))
    ledger.take("raw", [row(number, number + 1) for number in range(10)])
    assert sorted(ledger.live.revisions["flights"]) == [*range(3, 11)]


def test_counts_begin_with_the_rollout_and_do_not_fall_when_a_partition_changes_its_reader() -> None:
    counts = RevisionCounts()
    counts.step({0: published(1, {"1": {"raw": 1000}})}, ["flights"], 1)
    counts.step({0: published(2, {"1": {"raw": 1010}, "2": {"raw": 5}})}, ["flights"], 2)
    counts.step({0: published(3, {"1": {"raw": 3}})}, ["flights"], 3)  # a new reader, which counts from 0
    counts.step({0: published(3, {"1": {"raw": 3}})}, ["flights"], 4)  # nothing new
    counts.step({0: published(5, {"1": {"raw": 7}}), 1: published(5, {"1": {"raw": 50}})}, ["flights"], 5)
    flights = counts.get("flights")
    assert flights is not None
    assert flights.since_us == 1
    assert flights.of(1).accepted == 14  # 10, then 4 of the 7: the first 3 may be older
    assert flights.of(2).accepted == 5


def test_the_figures_of_an_ended_rollout_are_forgotten() -> None:
    counts = RevisionCounts()
    counts.step({0: published(1, {"1": {"raw": 1}})}, ["flights"], 1)
    counts.step({0: published(2, {"1": {"raw": 2}})}, [], 2)
    assert counts.get("flights") is None
    counts.step({0: published(3, {"1": {"raw": 9}})}, ["flights"], 3)
    flights_figures = counts.get("flights")
    assert flights_figures is not None
    assert (flights_figures.since_us, flights_figures.of(1).accepted) == (3, 0)


def test_the_revision_in_force_is_counted_however_many_newer_ones_were_rolled_back() -> None:
    activity, raw_stage, dead_stage = RecentActivity(), EventStage("raw"), EventStage("dead-event", "enrich")
    for revision in range(2, 40):
        activity.note("orders", 1, raw_stage, 10)
        activity.note("orders", revision, raw_stage, 10)
        activity.note("orders", revision, dead_stage, 1)
    assert activity.revisions["orders"][1] == {"raw": 380}
    assert activity.revisions["orders"][39] == {"raw": 10, "dead-event": 1}
    assert len(activity.revisions["orders"]) == 8, "what has no events any more is forgotten"
