"""Conditions are found in minutes and momentary figures, and end when their cause ends."""

import time
from typing import Any

import orjson
from tests.support.observe.simulated_mesh import Row, identity

from hifi.kafka.certificate_reports import ReportedCertificates, in_use, report_record
from hifi.record.fields import packed
from hifi.record.headers import DESTINATION, OUTCOME, RAW, REASON, SERVICE
from hifi.record.step_account import StepStatement
from hifi.runtime.certificates import Expiry
from hifi_observe.alarms.alarm import Alarms, Key
from hifi_observe.alarms.conditions import (
    PAUSED_S,
    RECENT_MINUTES,
    SKIPPED_S,
    Thresholds,
    certificates,
    find_conditions,
    lookups,
)
from hifi_observe.ledger.breaker_reports import ReceiptAnswer
from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.ledger.stage import EventStage
from hifi_observe.live import figures
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.availability import SloLimits
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.steps.partition_account import PartitionAccount

MINUTE = 28_333_333
MINUTE_US = 60_000_000
NOW_US = (MINUTE + 66) * MINUTE_US
THRESHOLDS = Thresholds(15, 10)


def merge_minute(store: MinuteStore, minute: int, at_us: int, lost_count: int) -> None:
    hops = [{"hop": "egest", "destination": "crm", "lost": lost_count}]
    causes = ["loss"] if lost_count else []
    value = {
        "state": "down" if lost_count else "up", "at_us": at_us, "lost": lost_count, "causes": causes, "hops": hops,
        **dict.fromkeys(("in", "delivered", "dead", "late"), 0),
    }  # fmt: skip
    store.take(record_keys.minute("flights", minute), orjson.dumps(value))


def look(store: MinuteStore, now_us: int = NOW_US) -> dict[Key, str]:
    limits = {"flights": SloLimits(1_000_000, 0)}
    return find_conditions(store, limits, {"flights": {"crm"}}, now_us, 1, THRESHOLDS)


def closed(minute: int) -> MinuteStore:
    store = MinuteStore()
    marker: dict[str, Any] = {"minute": minute, "gaps": {}}
    store.take(record_keys.closed(0), orjson.dumps(marker))
    return store


def test_an_event_that_a_step_lost_raises_an_alarm_that_names_it_for_ten_minutes() -> None:
    store = closed(MINUTE)
    suspect = {"partition": 3, "offset": 17, "event": "00000000000000ff:5", "minute": MINUTE}
    finding = {
        "kind": "windows",
        "at_us": NOW_US,
        "number": 9,
        "partition": 0,
        "first": 4,
        "last": 20,
        "events": 1,
        "text": "1 event in no window",
    }
    account = PartitionAccount(0, StepStatement.begin(("orders",), {}))
    step = account.dump() | {"findings": [finding | {"suspects": [suspect]}]}
    ledger_figures = figures.of_ledger(PartitionLedger(0, ClosingRules()), NOW_US, {})
    ledger_figures["steps"] = {"flights": step}
    store.take(record_keys.live(0), orjson.dumps(ledger_figures))
    cause = look(store)["step-loss", "flights", ""]
    assert cause == "of orders: 1 event in no window (00000000000000ff:5 at 3:17)"
    assert ("step-loss", "flights", "") not in look(store, NOW_US + (SKIPPED_S + 1) * 1_000_000)


def test_a_certificate_that_expires_soon_raises_an_alarm_until_it_is_renewed() -> None:
    now_us = time.time_ns() // 1000
    reported, alarms = ReportedCertificates(), Alarms()
    for days, active_subjects in ((10, ["ingest server"]), (90, [])):
        used_certificates = in_use(
            "ingest", {"server": Expiry(now_us / 1e6 + days * 86_400, "/run/chain.pem")}, 14
        )
        record = report_record("a", "ingest", used_certificates)
        reported.take(record.key, record.value, 0)
        for at_us in (now_us, now_us + MINUTE_US):
            alarms.step(certificates(reported, at_us / 1e6), at_us)
        assert [alarm.subject for alarm in alarms.active] == active_subjects
        assert all(
            "/run/chain.pem" in alarm.cause and "expires in 10.0 days" in alarm.cause
            for alarm in alarms.active
        )


def test_a_lookup_with_a_problem_is_told_with_its_pipe_and_reason_while_the_pipe_exists() -> None:
    problems = {"flights/airlines": "it has 0 rows instead of 16", "gone/airlines": "it is empty"}
    assert lookups(problems, ["flights", "orders"]) == {
        ("lookup", "flights", "airlines"): "it has 0 rows instead of 16"
    }
    assert lookups({}, ["flights"]) == {}


def test_a_loss_in_an_older_minute_is_reported_for_a_while() -> None:
    store = closed(MINUTE + 60)
    merge_minute(store, MINUTE, (MINUTE + 6) * MINUTE_US, 0)
    assert ("loss", "flights", "") not in look(store)
    merge_minute(store, MINUTE, NOW_US, 2)
    assert "lost 2 events at egest crm" in look(store)["loss", "flights", ""]
    assert look(store, NOW_US + (RECENT_MINUTES + 1) * MINUTE_US) == {}


def test_a_reported_loss_is_not_reported_again_when_its_minute_is_amended_otherwise() -> None:
    store = closed(MINUTE + 60)
    merge_minute(store, MINUTE, (MINUTE + 6) * MINUTE_US, 2)
    merge_minute(store, MINUTE, NOW_US, 2)
    assert look(store) == {}
    merge_minute(store, MINUTE, NOW_US, 3)
    assert ("loss", "flights", "") in look(store)


def test_of_many_minutes_that_close_at_once_none_goes_unseen() -> None:
    store = closed(MINUTE + 60)
    for minute in range(MINUTE, MINUTE + 61):
        merge_minute(store, minute, NOW_US, 1 if minute == MINUTE else 0)
    assert ("loss", "flights", "") in look(store)


def tell(store: MinuteStore, partition: int, ledger: PartitionLedger) -> None:
    ledger.reached_us = NOW_US
    store.take(record_keys.live(partition), orjson.dumps(figures.of_ledger(ledger, NOW_US, {})))


def fail(ledger: PartitionLedger, at_ms: range, destination: str = "crm") -> None:
    for append_ms in at_ms:
        ledger.live.outcome("flights", EventStage("failed", destination), "503", append_ms)


def test_a_failing_destination_is_reported_until_a_later_success_on_any_partition() -> None:
    store = closed(MINUTE)
    failing_ledger, other_ledger = PartitionLedger(0, ClosingRules()), PartitionLedger(1, ClosingRules())
    fail(failing_ledger, range(100, 112))
    other_ledger.live.success("flights", "crm", 90)
    tell(store, 0, failing_ledger)
    tell(store, 1, other_ledger)
    assert "12 outcomes in a row were 503" in look(store)["destination", "flights", "crm"]
    other_ledger.live.success("flights", "crm", 120)
    tell(store, 1, other_ledger)
    assert look(store) == {}


def test_a_long_pause_that_a_destination_asked_for_is_reported_while_deliveries_wait() -> None:
    store = closed(MINUTE)
    ledger = PartitionLedger(0, ClosingRules())
    asked_ms = NOW_US // 1000
    answer = ReceiptAnswer(b"503", b"status-503", b"paused:egest-1")
    ledger.live.breaker("flights", EventStage("to-retry", "crm"), answer, asked_ms)
    tell(store, 0, ledger)
    store.live[0]["waiting"] = [["flights", "retry-in.1h", "crm", 3]]
    later_us = NOW_US + (PAUSED_S + 1) * 1_000_000
    assert look(store) == {}
    cause = look(store, later_us)["destination", "flights", "crm"]
    assert "answer 503, Retry-After" in cause
    assert "3 deliveries are waiting" in cause
    store.live[0]["waiting"] = []
    assert ("destination", "flights", "crm") not in look(store, later_us)


def test_a_success_is_seen_from_its_receipt() -> None:
    ledger = PartitionLedger(0, ClosingRules())
    receipt = identity(b"%016x:%d" % (10, 0), MINUTE) | {DESTINATION: b"crm", OUTCOME: b"delivered"}
    ledger.take("receipts", [Row(0, 7, packed(receipt))])
    assert ledger.live.successes == {("flights", "crm"): 7}


def test_a_destination_that_the_pipe_no_longer_declares_is_not_reported() -> None:
    store = closed(MINUTE)
    ledger = PartitionLedger(0, ClosingRules())
    fail(ledger, range(12), "gone")
    tell(store, 0, ledger)
    assert look(store) == {}


def test_deleted_records_are_reported_for_a_while_whichever_partition_missed_them() -> None:
    store = closed(MINUTE)
    for partition in range(2):
        ledger = PartitionLedger(partition, ClosingRules())
        if partition:
            ledger.live.skip("raw", 5, NOW_US)
        tell(store, partition, ledger)
    assert look(store)["offsets-lost", "", ""] == "5 records of raw"
    assert ("offsets-lost", "", "") not in look(store, NOW_US + (SKIPPED_S + 1) * 1_000_000)


def test_deleted_records_of_a_source_are_reported_with_their_offsets_for_a_while() -> None:
    store = closed(MINUTE)
    ledger = PartitionLedger(0, ClosingRules())
    report = {"epoch": "0a", "service": "collect", "deleted": [["flights", "src[1]", 10, 14]]}
    second_report = report | {"deleted": [["flights", "src[1]", 20, 21]]}
    ledger.take(
        "accepted",
        [Row(n, NOW_US // 1000, [], orjson.dumps(body)) for n, body in enumerate((report, second_report))],
    )
    tell(store, 0, ledger)
    cause = "7 records of src[1], offsets 10 to 21, were deleted before they were read"
    assert look(store)["source-deleted", "flights", "src[1]"] == cause
    later_conditions = look(store, NOW_US + (SKIPPED_S + 1) * 1_000_000)
    assert ("source-deleted", "flights", "src[1]") not in later_conditions


def test_a_source_that_keeps_too_much_is_told_with_what_it_keeps() -> None:
    store = closed(MINUTE)
    ledger = PartitionLedger(0, ClosingRules())
    source = {
        "backfill": False, "done": 1, "remaining": 0, "read_per_s": 0, "arriving_per_s": 0, "limit_per_s": 1,
        "late": "", "held_bytes": 5, "held": "5 bytes",
    }  # fmt: skip
    for offset, excess in enumerate(("", "5 bytes")):
        report = {"epoch": "0a", "service": "collect", "sources": {"flights": source | {"held": excess}}}
        ledger.take("accepted", [Row(offset, NOW_US // 1000, [], orjson.dumps(report))])
        tell(store, 0, ledger)
        assert look(store).get(("source-held", "flights", "")) == (excess or None)


def test_what_is_to_be_known_of_the_rows_of_a_source_is_an_alarm() -> None:
    store = closed(MINUTE)
    ledger = PartitionLedger(0, ClosingRules())
    source = {
        "backfill": False, "done": 1, "remaining": 0, "read_per_s": 0, "arriving_per_s": 0, "limit_per_s": 1,
        "late": "",
    }  # fmt: skip
    for offset, notice in enumerate(("5 rows were deleted for a TRUNCATE", "")):
        report = {"epoch": "0a", "service": "collect", "sources": {"flights": source | {"notice": notice}}}
        ledger.take("accepted", [Row(offset, NOW_US // 1000, [], orjson.dumps(report))])
        tell(store, 0, ledger)
        assert look(store).get(("source-rows", "flights", "")) == (notice or None)


def dead_letters(ledger: PartitionLedger, count: int) -> None:
    reason_fields = {SERVICE: b"normalize", REASON: b"schema"}
    first_offset = ledger.positions.get("dead-letter", 0)
    rows = [
        Row(
            offset,
            NOW_US // 1000 - 1000,
            packed(identity(b"%016x:%d" % (10, offset), MINUTE) | reason_fields),
        )
        for offset in range(first_offset, first_offset + count)
    ]
    ledger.take("dead-letter", rows)


def test_dead_letters_are_reported_as_a_count_and_not_as_a_rate() -> None:
    store = closed(MINUTE)
    ledger = PartitionLedger(0, ClosingRules())
    ledger.reached_us = NOW_US
    store.take(record_keys.live(0), orjson.dumps(figures.of_ledger(ledger, NOW_US - 1_000_000, {})))
    dead_letters(ledger, 1)
    tell(store, 0, ledger)
    assert look(store)["dead-letters", "flights", ""] == "1 dead letter in the last minute"
    dead_letters(ledger, 2)
    tell(store, 0, ledger)
    assert look(store)["dead-letters", "flights", ""] == "3 dead letters in the last minute"


def test_enrich_makes_no_progress_only_if_it_neither_commits_nor_writes() -> None:
    def row(offset: int) -> Row:
        fields = identity(b"%016x:%d" % (10, offset), MINUTE) | {RAW: b"%d" % offset}
        return Row(offset, NOW_US // 1000 - 10_000, packed(fields))

    store = closed(MINUTE)
    ledger = PartitionLedger(0, ClosingRules())
    ledger.take("normalized", [row(offset) for offset in range(10)])

    def published(at_us: int, enriched: int) -> dict[Key, str]:
        ledger.take("enriched", [row(enriched)])
        ledger.reached_us = NOW_US
        store.take(record_keys.live(0), orjson.dumps(figures.of_ledger(ledger, at_us, {})))
        return look(store)

    published(NOW_US - 4_000_000, 3)
    assert ("no-progress", "", "enrich") not in published(NOW_US - 2_000_000, 5), "it writes"
    summary = published(NOW_US, 5)["no-progress", "", "enrich"]
    assert summary == "enrich committed nothing on normalized[0]; 4 records are waiting"
