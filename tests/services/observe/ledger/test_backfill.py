"""Backfill is accounted for like any event, and counts neither in lags nor against the SLO."""

from typing import Any

import orjson
from tests.support.observe.simulated_mesh import TOPICS, Row, identity

from hifi.record.fields import packed
from hifi.record.headers import ORIGIN
from hifi.record.identity import BACKFILL
from hifi_observe.ledger.closing import ClosingRules, MinuteResult, OffsetSnapshot
from hifi_observe.ledger.grouping import group_records
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.live import figures
from hifi_observe.minutes.availability import DestinationLimits, IngestHealth, SloLimits
from hifi_observe.minutes.merged_minute import dump, load_pipe_minute, load_share, merge
from hifi_observe.minutes.open_minute import OpenMinute

EPOCH = "0" * 15 + "a"
MINUTE = 28_333_333
ACCEPTED_US = MINUTE * 60_000_000
CLOSED_US = ACCEPTED_US + 120_000_000
LIMITS = SloLimits(p95_us=1_000_000, loss=0)
LIVE = range(3)
BACKFILL_OFFSETS = range(3, 10)


def row(offset: int, **extra_fields: bytes) -> Row:
    """A record of the event with this sequence; from the fourth on they are backfill."""
    fields = identity(f"{EPOCH}:{offset}".encode(), MINUTE)
    fields |= {ORIGIN: BACKFILL} if offset in BACKFILL_OFFSETS else {}
    fields |= {f"hifi_{name}": value for name, value in extra_fields.items()}
    return Row(offset, MINUTE * 60_000, packed(fields))


def receipt(offset: int) -> Row:
    """A receipt of a delivery that took 0.1 s, or 50 s with backfill."""
    answered_us = ACCEPTED_US + (50_000_000 if offset in BACKFILL_OFFSETS else 100_000)
    times = {"sent": b"%d" % (answered_us - 1000), "answered": b"%d" % answered_us}
    return row(offset, destination=b"crm", outcome=b"delivered", **times)


def ledger(delivered_count: int) -> PartitionLedger:
    """Ten events have gone the whole way to enriched; the first of them were delivered."""
    partition_ledger = PartitionLedger(0, ClosingRules(settle_s=10))
    partition_ledger.positions = dict.fromkeys(TOPICS, 0)
    for topic in ("raw", "normalized"):
        partition_ledger.take(topic, [row(offset) for offset in range(10)])
    partition_ledger.take("enriched", [row(offset, to=b"crm") for offset in range(10)])
    partition_ledger.take("receipts", [receipt(offset) for offset in range(delivered_count)])
    return partition_ledger


def closed(partition_ledger: PartitionLedger, **committed: int) -> MinuteResult:
    partition_ledger.begin(
        OffsetSnapshot(
            CLOSED_US, 0, {"raw": 10, "normalized": 10} | committed, dict(partition_ledger.positions)
        )
    )
    return partition_ledger.settle()[0]


def merged(minute_result: MinuteResult, limits: SloLimits = LIMITS) -> dict[str, Any]:
    share = load_share(orjson.loads(orjson.dumps(dump(minute_result, 0, CLOSED_US))))
    return merge("flights", MINUTE, [share], limits, IngestHealth(0))


def test_a_late_backfill_makes_no_minute_down_and_every_event_of_it_is_counted() -> None:
    minute = merged(closed(ledger(10), enriched=10))
    assert (minute["state"], minute["in"], minute["delivered"], minute["lost"]) == ("up", 10, 10, 0)
    assert minute["backfill"] == len(BACKFILL_OFFSETS)
    assert minute["lags"]["end.accepted/crm"]["count"] == len(LIVE)
    assert minute["p95_us"] < 200_000


def test_backfill_that_is_not_delivered_yet_does_not_count_with_its_age() -> None:
    minute = merged(closed(ledger(3), enriched=0))
    assert (minute["in_flight"], minute["state"]) == (7, "up")
    crm_limits = SloLimits(1_000_000, 0, destinations={"crm": DestinationLimits(1_000_000, 0)})
    assert merged(closed(ledger(3), enriched=0), crm_limits)["state"] == "up"
    minute = merged(closed(ledger(1), enriched=0))
    assert (minute["in_flight"], minute["causes"]) == (9, ["lag"]), "a live event of the minute is late"


def test_a_lost_event_is_lost_whatever_its_origin() -> None:
    minute = merged(closed(ledger(9), enriched=10))
    assert (minute["lost"], minute["causes"]) == (1, ["loss"])


def test_the_fact_survives_a_restart_of_observe() -> None:
    minute_result = closed(ledger(3), enriched=0)
    restored_minute = load_pipe_minute(orjson.loads(orjson.dumps(dump(minute_result, 0, CLOSED_US))))
    assert len(restored_minute.backfill) == len(BACKFILL_OFFSETS)


def test_the_lag_now_and_an_open_minute_leave_backfill_out_and_count_it() -> None:
    partition_ledger = ledger(10)
    lags = partition_ledger.live.take_lags()
    assert {key: len(sketch) for key, sketch in lags.items()} == {("flights", 1): len(LIVE)}
    open_minute = OpenMinute.load(
        OpenMinute.of(partition_ledger.pipe_minutes["flights", MINUTE]).dump()
    ).json(1_000_000)
    assert (open_minute["in"], open_minute["delivered"], open_minute["backfill"]) == (
        10,
        10,
        len(BACKFILL_OFFSETS),
    )
    assert open_minute["p95_us"] < 200_000


def test_what_a_later_release_appends_hides_no_backfill() -> None:
    rows = [row(offset) for offset in range(10)]
    for number, backfill_row in enumerate(rows):
        name, value = backfill_row.headers[0]
        text = value if number in BACKFILL_OFFSETS else value + b";"
        backfill_row.headers[0] = name, text + (b";;;new" if number % 2 else b"")  # after kind and log
    batch = group_records("raw", rows, 0)
    assert batch.foreign == 0
    sequences = {
        flag: sorted(
            number
            for records in batch.minutes.values()
            for group in records.groups
            if group.backfill is flag
            for number in group.sequences
        )
        for flag in (False, True)
    }
    assert sequences == {False: [*LIVE], True: [*BACKFILL_OFFSETS]}


def test_the_progress_of_a_source_is_added_up_over_the_instances_that_told_it_lately() -> None:
    partition_ledger = PartitionLedger(0, ClosingRules())
    source = {
        "backfill": True, "done": 10, "remaining": 90, "read_per_s": 5, "arriving_per_s": 2, "limit_per_s": 5,
        "late": "enrich", "new": 1,
    }  # fmt: skip

    def tell(offset: int, epoch: str, at_ms: int, **extra_fields: object) -> None:
        body = {"service": "collect", "epoch": epoch, "sources": {"flights": source}, **extra_fields}
        partition_ledger.take("accepted", [Row(offset, at_ms, [], orjson.dumps(body))])

    def now(at_ms: int) -> dict[str, Any] | None:
        published_figures = orjson.loads(orjson.dumps(figures.of_ledger(partition_ledger, at_ms * 1000, {})))
        source_figures: dict[str, Any] | None = figures.of_pipe("flights", {0: published_figures}, {})[
            "source"
        ]
        return source_figures

    assert now(1000) is None
    tell(0, "a", 1000)
    tell(1, "b", 2000)
    assert now(2000) == {
        "backfill": True, "done": 20, "remaining": 180, "read_per_s": 10, "arriving_per_s": 4, "limit_per_s": 10,
        "late": "enrich", "held": "", "held_bytes": 0, "notice": "", "left_s": 30,
    }  # fmt: skip
    tell(2, "a", 3000, closed=True)
    assert (now(3000) or {})["done"] == 10
    assert now(2000 + 15_000) is None, "it has told nothing for long"
