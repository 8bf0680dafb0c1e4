"""Momentary figures add up what every partition number publishes; processed records do not count as waiting."""

from typing import Any

import orjson
from tests.support.observe.simulated_mesh import Row, identity

from hifi.record.fields import packed, with_fields
from hifi.record.headers import RAW
from hifi_observe.ledger.closing import ClosingRules, OffsetSnapshot
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.live import figures

NOW_MS = 28_333_333 * 60_000


def row(offset: int, raw_offset: int | None = None, **extra_fields: bytes) -> Row:
    """A record whose offset in `raw` is 100 higher than its own, if not given."""
    fields = identity(b"%016x:%d" % (10, offset), NOW_MS // 60_000)
    fields |= {RAW: b"%d" % (offset + 100 if raw_offset is None else raw_offset)}
    fields |= {f"hifi_{name}": value for name, value in extra_fields.items()}
    return Row(offset, NOW_MS + offset, packed(fields))


def ledger_of_enrich(normalized: int) -> PartitionLedger:
    """Enrich has committed nothing yet, in the middle of a batch."""
    partition_ledger = PartitionLedger(0, ClosingRules())
    partition_ledger.begin(OffsetSnapshot(0, 0, {"normalized": 0}, {}))
    partition_ledger.take("normalized", [row(offset) for offset in range(normalized)])
    return partition_ledger


def backlog(partition_ledger: PartitionLedger) -> dict[str, Any]:
    published_figures = orjson.loads(
        orjson.dumps(figures.of_ledger(partition_ledger, (NOW_MS + 10_000) * 1000, {}))
    )
    return next(group for group in figures.groups({0: published_figures}) if group["topic"] == "normalized")


def test_records_that_enrich_wrote_but_did_not_commit_yet_are_not_waiting() -> None:
    partition_ledger = ledger_of_enrich(6000)
    assert (backlog(partition_ledger)["records"], backlog(partition_ledger)["uncommitted"]) == (6000, 0)
    partition_ledger.take("enriched", [row(offset, to=b"crm") for offset in range(4348)])
    partition_ledger.take("enriched", [row(offset, to=b"crm") for offset in range(4348, 5990)])
    group = backlog(partition_ledger)
    assert (group["records"], group["uncommitted"]) == (10, 5990)
    assert group["seconds"] == 10 - 5.99
    partition_ledger.take("enriched", [row(offset, to=b"crm") for offset in range(5990, 6000)])
    assert backlog(partition_ledger) == {
        "topic": "normalized", "service": "enrich", "records": 0, "uncommitted": 6000, "seconds": 0.0
    }  # fmt: skip
    partition_ledger.begin(OffsetSnapshot(0, 0, {"normalized": 6000}, {}))
    assert (backlog(partition_ledger)["records"], backlog(partition_ledger)["uncommitted"]) == (0, 0)


def test_it_does_not_matter_which_topic_is_read_first() -> None:
    partition_ledger = PartitionLedger(0, ClosingRules())
    partition_ledger.take("enriched", [row(offset, to=b"crm") for offset in range(8)])
    partition_ledger.take("normalized", [row(offset) for offset in range(10)])
    assert (backlog(partition_ledger)["records"], backlog(partition_ledger)["uncommitted"]) == (2, 8)


def test_an_event_that_enrich_refused_does_not_wait() -> None:
    partition_ledger = ledger_of_enrich(3)
    partition_ledger.take("enriched", [row(0, to=b"crm"), row(1, to=b"crm")])
    partition_ledger.take("dead-letter", [row(0, 102, service=b"enrich", reason=b"too-large")])
    assert (backlog(partition_ledger)["records"], backlog(partition_ledger)["uncommitted"]) == (0, 3)


def test_a_replay_and_a_dead_letter_of_another_service_show_no_progress_of_enrich() -> None:
    partition_ledger = ledger_of_enrich(3)
    partition_ledger.take("enriched", [row(0, 102, to=b"crm", replay=b"1")])
    partition_ledger.take("dead-letter", [row(0, 102, service=b"normalize", reason=b"schema")])
    partition_ledger.take(
        "dead-letter", [row(1, 102, service=b"egest", destination=b"crm", reason=b"status-400")]
    )
    assert (backlog(partition_ledger)["records"], backlog(partition_ledger)["uncommitted"]) == (3, 0)


def test_a_record_without_an_offset_in_raw_waits_until_it_is_committed() -> None:
    partition_ledger = PartitionLedger(0, ClosingRules())
    partition_ledger.take("normalized", [row(0), Row(1, NOW_MS, with_fields(row(1).headers, {RAW: None}))])
    partition_ledger.take("enriched", [row(0, to=b"crm"), row(1, to=b"crm")])
    assert (backlog(partition_ledger)["records"], backlog(partition_ledger)["uncommitted"]) == (1, 1)


def test_what_a_running_batch_has_processed_is_not_in_flight_on_normalized() -> None:
    partition_ledger = ledger_of_enrich(5)
    partition_ledger.take("enriched", [row(0, 100, to=b"crm"), row(1, 101, to=b"crm")])
    pipe = figures.of_pipe("flights", {0: figures.of_ledger(partition_ledger, NOW_MS * 1000, {})}, {})
    waiting_by_topic = {stage["topic"]: stage["records"] for stage in pipe["waiting"]}
    assert (waiting_by_topic, pipe["in_flight"]) == ({"normalized": 3, "enriched": 2}, 5)


def test_dead_letters_of_the_last_minute_are_counted_over_all_partitions() -> None:
    ledgers = [PartitionLedger(number, ClosingRules()) for number in range(2)]
    for partition_ledger, count in zip(ledgers, (1, 2), strict=True):
        partition_ledger.take("dead-letter", [row(offset, service=b"normalize") for offset in range(count)])

    def counted(after_s: int) -> int:
        now_us = (NOW_MS + after_s * 1000) * 1000
        live = {ledger.partition: figures.of_ledger(ledger, now_us, {}) for ledger in ledgers}
        return int(figures.of_pipe("flights", live, {})["dead_last_minute"])

    assert (counted(1), counted(59), counted(60)) == (3, 3, 0)
