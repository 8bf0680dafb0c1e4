"""Single rules of closing, each with the smallest case that needs it."""

import orjson
from tests.support.observe.simulated_mesh import TOPICS, Row, identity

from hifi.record.fields import packed
from hifi_observe.ledger.closing import ClosingRules, LakeRead, MinuteResult, OffsetSnapshot
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.pipe_minute_stages import PipeMinuteStages
from hifi_observe.ledger.stage import EventStage
from hifi_observe.minutes.open_minute import OpenMinute

EPOCH = "0" * 15 + "a"
MINUTE = 28_333_333
CLOSED_US = (MINUTE + 1) * 60_000_000 + 60_000_000
RULES = ClosingRules(settle_s=10)


def row(offset: int, sequence: int, **extra_fields: bytes) -> Row:
    fields = identity(f"{EPOCH}:{sequence}".encode(), MINUTE)
    fields |= {f"hifi_{name}": value for name, value in extra_fields.items()}
    return Row(offset, MINUTE * 60_000, packed(fields))


def ledger() -> PartitionLedger:
    partition_ledger = PartitionLedger(0, RULES)
    partition_ledger.positions = dict.fromkeys(TOPICS, 0)
    return partition_ledger


def judge(partition_ledger: PartitionLedger, **committed: int) -> MinuteResult:
    committed_offsets = {name.replace("_", "-"): offset for name, offset in committed.items()}
    partition_ledger.begin(OffsetSnapshot(CLOSED_US, 0, committed_offsets, dict(partition_ledger.positions)))
    partition_ledger.settle()
    return partition_ledger.look(partition_ledger.pipe_minutes["flights", MINUTE])


def unresolved_counts(minute_result: MinuteResult) -> dict[tuple[str, str], int]:
    return {(missing.hop, missing.state): len(missing.ids) for missing in minute_result.unresolved}


def test_what_is_committed_past_without_a_successor_is_lost_and_the_rest_in_flight() -> None:
    partition_ledger = ledger()
    partition_ledger.take("raw", [row(0, 0), row(1, 1), row(2, 2)])
    partition_ledger.take("normalized", [row(0, 0)])
    assert unresolved_counts(judge(partition_ledger, raw=2)) == {
        ("normalize", "lost"): 1, ("normalize", "in_flight"): 1, ("enrich", "in_flight"): 1,
    }  # fmt: skip


def test_an_event_whose_second_copy_is_still_to_be_read_is_not_lost() -> None:
    partition_ledger = ledger()
    partition_ledger.take("raw", [row(0, 0), row(1, 0)])
    assert unresolved_counts(judge(partition_ledger, raw=1)) == {("normalize", "in_flight"): 1}
    assert unresolved_counts(judge(partition_ledger, raw=2)) == {("normalize", "lost"): 1}


def test_nothing_is_judged_before_everything_up_to_the_snapshot_was_read() -> None:
    partition_ledger = ledger()
    partition_ledger.take("raw", [row(0, 0)])
    partition_ledger.begin(OffsetSnapshot(CLOSED_US, 0, {"raw": 1}, {"raw": 1, "normalized": 1}))
    assert not partition_ledger.reached
    partition_ledger.take("normalized", [row(0, 0)])
    assert partition_ledger.reached


def test_a_dead_letter_that_is_read_before_its_event_ends_it_all_the_same() -> None:
    partition_ledger = ledger()
    partition_ledger.take("dead-letter", [row(0, 0, service=b"normalize")])
    assert unresolved_counts(judge(partition_ledger)) == {}
    partition_ledger.take("raw", [row(0, 0)])
    minute_result = judge(partition_ledger, raw=1)
    assert unresolved_counts(minute_result) == {}
    assert minute_result.counts["ingest", "", "in"] == 1
    assert not minute_result.pipe_minute.copies


def test_a_retry_that_is_not_due_waits_and_one_that_the_retrier_skipped_is_lost() -> None:
    partition_ledger = ledger()
    partition_ledger.take("raw", [row(0, 0)])
    partition_ledger.take("normalized", [row(0, 0)])
    partition_ledger.take("enriched", [row(0, 0, to=b"crm")])
    partition_ledger.take("retry-in.5s", [row(0, 0, destination=b"crm", **{"pass": b"0"})])
    committed = {"raw": 1, "normalized": 1, "enriched": 1}
    assert unresolved_counts(judge(partition_ledger, **committed)) == {("retrier", "waiting"): 1}
    partition_ledger.begin(
        OffsetSnapshot(CLOSED_US, 0, committed | {"retry-in.5s": 1}, dict(partition_ledger.positions))
    )
    partition_ledger.settle()
    assert unresolved_counts(partition_ledger.look(partition_ledger.pipe_minutes["flights", MINUTE])) == {
        ("retrier", "lost"): 1
    }
    partition_ledger.take("retry-out", [row(0, 0, destination=b"crm", **{"pass": b"1"})])
    assert unresolved_counts(judge(partition_ledger, **committed)) == {("retry", "in_flight"): 1}
    partition_ledger.take("retry-in.30s", [row(0, 0, destination=b"crm", **{"pass": b"1"})])
    assert unresolved_counts(judge(partition_ledger, **committed, retry_out=1)) == {("retrier", "waiting"): 1}
    partition_ledger.take("receipts", [row(0, 0, destination=b"crm", outcome=b"delivered")])
    assert unresolved_counts(judge(partition_ledger, **committed, retry_out=1)) == {}


def test_what_is_parked_is_told_as_such_although_the_retrier_committed_past_it() -> None:
    partition_ledger = ledger()
    partition_ledger.take("raw", [row(0, 0)])
    partition_ledger.take("normalized", [row(0, 0)])
    partition_ledger.take("enriched", [row(0, 0, to=b"crm")])
    partition_ledger.take("parked", [row(0, 0, destination=b"crm", **{"pass": b"2"})])
    partition_ledger.take("receipts", [row(0, 0, destination=b"crm", outcome=b"parked", **{"pass": b"2"})])
    committed = {"raw": 1, "normalized": 1, "enriched": 1, "parked": 1}
    assert unresolved_counts(judge(partition_ledger, **committed)) == {("retrier", "parked"): 1}
    partition_ledger.take("retry-out", [row(0, 0, destination=b"crm", **{"pass": b"3"})])
    assert unresolved_counts(judge(partition_ledger, **committed)) == {("retry", "in_flight"): 1}
    partition_ledger.take("receipts", [row(1, 0, destination=b"crm", outcome=b"delivered")])
    assert unresolved_counts(judge(partition_ledger, **committed, retry_out=1)) == {}


def test_what_kafka_deletes_while_it_is_parked_is_lost_with_its_id() -> None:
    partition_ledger = ledger()
    for sequence in range(4):
        partition_ledger.take("raw", [row(sequence, sequence)])
        partition_ledger.take("normalized", [row(sequence, sequence)])
        partition_ledger.take("enriched", [row(sequence, sequence, to=b"crm")])
        partition_ledger.take("parked", [row(10 + sequence, sequence, destination=b"crm", **{"pass": b"2"})])
    partition_ledger.take("retry-out", [row(0, 0, destination=b"crm", **{"pass": b"3"})])
    partition_ledger.take("receipts", [row(1, 0, destination=b"crm", outcome=b"delivered")])
    partition_ledger.take("dead-letter", [row(0, 1, destination=b"crm", service=b"retrier")])
    committed = {"raw": 4, "normalized": 4, "enriched": 4, "retry_out": 1}
    assert unresolved_counts(judge(partition_ledger, **committed)) == {("retrier", "parked"): 2}
    committed_offsets = {name.replace("_", "-"): offset for name, offset in committed.items()}

    def delete_before(first_offset: int) -> list[MinuteResult]:
        partition_ledger.begin(
            OffsetSnapshot(
                CLOSED_US, 0, committed_offsets, dict(partition_ledger.positions), None, first_offset
            )
        )
        return partition_ledger.settle()

    assert delete_before(13) == [], "some of the minute are there"
    assert unresolved_counts(partition_ledger.look(partition_ledger.pipe_minutes["flights", MINUTE])) == {
        ("retrier", "parked"): 2
    }
    [minute_result] = delete_before(14)
    [unresolved] = minute_result.unresolved
    assert (unresolved.hop, unresolved.destination, unresolved.state) == ("retrier", "crm", "lost")
    assert list(unresolved.ids) == [(EPOCH, 2), (EPOCH, 3)]
    assert delete_before(20) == []
    restored_minute = PipeMinute.load(
        "flights", MINUTE, orjson.loads(orjson.dumps(minute_result.pipe_minute.dump()))
    )
    partition_ledger.pipe_minutes["flights", MINUTE] = restored_minute
    assert unresolved_counts(partition_ledger.look(restored_minute)) == {("retrier", "lost"): 2}


def test_the_dead_letter_of_a_step_ends_no_delivery() -> None:
    partition_ledger = ledger()
    partition_ledger.take("raw", [row(0, 0)])
    partition_ledger.take("normalized", [row(0, 0)])
    partition_ledger.take("enriched", [row(0, 0, to=b"crm")])
    partition_ledger.take("dead-letter", [row(0, 0, service=b"state")])
    committed = {"raw": 1, "normalized": 1}
    minute_result = judge(partition_ledger, **committed)
    assert unresolved_counts(minute_result) == {("egest", "in_flight"): 1}
    assert not OpenMinute.of(minute_result.pipe_minute).dead
    stages = PipeMinuteStages(minute_result.pipe_minute)
    assert stages.without_outcome(minute_result.pipe_minute.seen[EventStage("raw")], "crm")


def test_the_receipt_of_a_dead_letter_does_not_stand_for_the_dead_letter() -> None:
    partition_ledger = ledger()
    partition_ledger.take("raw", [row(0, 0)])
    partition_ledger.take("normalized", [row(0, 0)])
    partition_ledger.take("enriched", [row(0, 0, to=b"crm")])
    partition_ledger.take("receipts", [row(0, 0, destination=b"crm", outcome=b"dead-letter")])
    committed = {"raw": 1, "normalized": 1, "enriched": 1}
    assert unresolved_counts(judge(partition_ledger, **committed)) == {("egest", "lost"): 1}
    partition_ledger.take("dead-letter", [row(0, 0, destination=b"crm", service=b"egest")])
    assert unresolved_counts(judge(partition_ledger, **committed)) == {}


def test_a_replayed_dead_letter_moves_to_replayed_and_is_no_copy() -> None:
    partition_ledger = ledger()
    partition_ledger.take("raw", [row(0, 0)])
    partition_ledger.take("dead-letter", [row(0, 0, service=b"normalize")])
    judge(partition_ledger, raw=1)
    partition_ledger.take("normalized", [row(0, 0, replay=b"1")])
    partition_ledger.take("receipts", [row(0, 0, destination=b"crm", outcome=b"delivered", replay=b"1")])
    minute_result = judge(partition_ledger, raw=1)
    assert len(minute_result.pipe_minute.replayed["crm"]) == 1
    assert not minute_result.pipe_minute.copies
    assert unresolved_counts(minute_result) == {}


def test_what_is_no_event_of_ours_is_counted_and_hurts_nothing() -> None:
    partition_ledger = ledger()
    partition_ledger.take(
        "raw",
        [
            Row(0, 0, []),
            Row(1, 0, [("hifi", b"2;p;1;1;1;1;x"), ("hifi_hop", b"1")]),
            row(2, 0),
        ],
    )
    partition_ledger.take("accepted", [Row(0, 0, [], b"not json")])
    assert (partition_ledger.foreign["raw"], partition_ledger.foreign["accepted"]) == (2, 1)
    assert judge(partition_ledger).counts["ingest", "", "in"] == 1


def test_an_epoch_that_ends_without_a_closing_ack_report_leaves_its_minute_incomplete() -> None:
    for is_closed, expected in ((True, (1, 0)), (False, (0, 1))):
        partition_ledger = ledger()
        partition_ledger.take("raw", [row(0, 0)])
        report = {"epoch": EPOCH, "pipes": {}, "closed": is_closed}
        partition_ledger.take("accepted", [Row(0, MINUTE * 60_000, [], orjson.dumps(report))])
        partition_ledger.begin(OffsetSnapshot(CLOSED_US, 1, {}, dict(partition_ledger.positions)))
        (minute_result,) = partition_ledger.settle()
        assert (minute_result.unacknowledged, minute_result.ack_report_incomplete) == expected


def test_a_closed_minute_survives_json_and_continues() -> None:
    partition_ledger = ledger()
    partition_ledger.take("raw", [row(0, 0), row(1, 1)])
    partition_ledger.take("normalized", [row(0, 0)])
    judge(partition_ledger, raw=1)
    pipe_minute = partition_ledger.pipe_minutes["flights", MINUTE]
    resumed_ledger = PartitionLedger.resume(
        0,
        RULES,
        orjson.loads(orjson.dumps(partition_ledger.marker())),
        [PipeMinute.load("flights", MINUTE, orjson.loads(orjson.dumps(pipe_minute.dump())))],
    )
    start = resumed_ledger.positions["raw"]
    resumed_ledger.take("raw", [raw_row for raw_row in (row(0, 0), row(1, 1)) if raw_row.offset >= start])
    assert unresolved_counts(judge(resumed_ledger, raw=2)) == {
        ("normalize", "lost"): 1,
        ("enrich", "in_flight"): 1,
    }
    assert judge(resumed_ledger, raw=2).counts["ingest", "", "in"] == 2


def test_a_copy_of_an_event_that_came_to_its_end_is_a_copy_after_closing_too() -> None:
    partition_ledger = ledger()
    partition_ledger.take("raw", [row(0, 0)])
    partition_ledger.take("dead-letter", [row(0, 0, service=b"normalize")])
    judge(partition_ledger, raw=1)
    partition_ledger.take("raw", [row(1, 0), row(2, 7)])
    minute_result = judge(partition_ledger, raw=1)
    assert (minute_result.pipe_minute.copies[EventStage("raw")], len(minute_result.pipe_minute.late)) == (
        1,
        1,
    )
    assert minute_result.counts["ingest", "", "in"] == 2
    assert unresolved_counts(minute_result) == {("normalize", "in_flight"): 1}


def test_deliveries_to_tables_are_judged_by_the_commits_of_lake() -> None:
    partition_ledger = ledger()
    tables = frozenset({("flights", "lake")})

    def look(in_lake: int) -> dict[tuple[str, str], int]:
        committed_offsets = {"raw": 9, "normalized": 9, "enriched": 2}
        end_offsets = dict(partition_ledger.positions)
        partition_ledger.begin(
            OffsetSnapshot(CLOSED_US, 0, committed_offsets, end_offsets, LakeRead(in_lake, tables))
        )
        partition_ledger.settle()
        unresolved = partition_ledger.look(partition_ledger.pipe_minutes["flights", MINUTE]).unresolved
        return {
            (missing.destination, missing.state): len(missing.ids)
            for missing in unresolved
            if missing.hop == "egest"
        }

    partition_ledger.lake = LakeRead(0, tables)
    for name in ("raw", "normalized"):
        partition_ledger.take(name, [row(0, 0), row(1, 1)])
    partition_ledger.take("enriched", [row(0, 0, to=b"web,lake"), row(1, 1, to=b"web,lake")])
    partition_ledger.take("receipts", [row(0, 0, destination=b"web", outcome=b"delivered")])
    assert look(0) == {("web", "lost"): 1, ("lake", "in_flight"): 2}
    assert look(1) == {("web", "lost"): 1, ("lake", "lost"): 1, ("lake", "in_flight"): 1}
    partition_ledger.take("receipts", [row(1, 0, destination=b"lake", outcome=b"delivered")])
    assert look(2) == {("web", "lost"): 1, ("lake", "lost"): 1}
