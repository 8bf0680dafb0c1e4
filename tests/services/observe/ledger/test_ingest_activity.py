"""Ingest's heartbeat: the gap of a minute; minutes that were not observed are unknown."""

from collections.abc import Iterable
from typing import Any

import orjson
from tests.support.observe.simulated_mesh import Row

from hifi_observe.ledger.ack_report import AckReport
from hifi_observe.ledger.closing import ClosingRules, OffsetSnapshot
from hifi_observe.ledger.ingest_activity import IngestActivity
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.live import figures
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.minute_store import MinuteStore

MINUTE = 28_333_333
RULES = ClosingRules(settle_s=0)


def beat(partition_ledger: PartitionLedger, seconds: Iterable[int], **extra_fields: Any) -> None:
    """One tally in each of these seconds, counted from the start of MINUTE."""
    value = orjson.dumps({"epoch": "a", "pipes": {}, "closed": False, **extra_fields})
    first_offset = partition_ledger.positions.get("accepted", 0)
    rows = [
        Row(first_offset + number, (MINUTE * 60 + second) * 1000, [], value)
        for number, second in enumerate(seconds)
    ]
    partition_ledger.take("accepted", rows)


def close(partition_ledger: PartitionLedger, minute: int) -> dict[str, Any]:
    """The marker after closing minutes up to this one, as a restart reads it."""
    partition_ledger.begin(OffsetSnapshot((minute + 1) * 60_000_000, 0, {}, dict(partition_ledger.positions)))
    partition_ledger.settle()
    marker: dict[str, Any] = orjson.loads(orjson.dumps(partition_ledger.marker()))
    return marker


def resume(marker: dict[str, Any]) -> PartitionLedger:
    return PartitionLedger.resume(0, RULES, marker, [])


def test_a_gap_is_the_longest_time_without_an_ack_report() -> None:
    activity = IngestActivity()
    for second in (*range(60), 70, 100):
        activity.add(0, (MINUTE * 60 + second) * 1000, AckReport("a"))
    assert [activity.gap_s(MINUTE + minutes) for minutes in (0, 1, 2)] == [0, 29, 60]


def test_the_time_before_the_first_ack_report_is_unknown() -> None:
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, range(40, 120))
    assert close(partition_ledger, MINUTE + 1)["gaps"] == {str(MINUTE): 0, str(MINUTE + 1): 0}


def test_after_a_restart_nothing_is_said_of_minutes_that_were_closed_before() -> None:
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, range(180))
    marker = close(partition_ledger, MINUTE + 1)
    resumed_ledger = resume(marker)
    beat(resumed_ledger, range(120, 180))
    assert close(resumed_ledger, MINUTE + 1)["gaps"] == {}
    assert close(resumed_ledger, MINUTE + 2)["gaps"] == {str(MINUTE + 2): 0}


def test_answers_are_published_for_the_minutes_that_closed() -> None:
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, (1, 2), answers={"202": 97, "400": 1, "503": 1})
    beat(partition_ledger, (61,), answers={"202": 10})
    beat(partition_ledger, (121,))
    assert close(partition_ledger, MINUTE)["answers"] == {str(MINUTE): [2, 198]}
    assert close(partition_ledger, MINUTE + 2)["answers"] == {str(MINUTE + 1): [0, 10]}


def test_refusals_of_a_paused_pipe_are_published_for_the_minutes_that_closed() -> None:
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, (1, 2), answers={"202": 5}, paused={"flights": 3})
    beat(partition_ledger, (61,), paused={"orders": 1})
    marker = close(partition_ledger, MINUTE + 1)
    assert marker["paused"] == {str(MINUTE): {"flights": 6}, str(MINUTE + 1): {"orders": 1}}
    assert marker["answers"] == {str(MINUTE): [0, 10]}


def test_ingest_that_is_silent_across_a_restart_stays_silent() -> None:
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, range(60))
    resumed_ledger = resume(close(partition_ledger, MINUTE + 2))
    assert figures.of_ledger(resumed_ledger, 0, {})["ack_reported"] == (MINUTE * 60 + 59) * 1000
    assert close(resumed_ledger, MINUTE + 4)["gaps"] == {str(MINUTE + 3): 60, str(MINUTE + 4): 60}
    resumed_again = resume(close(resumed_ledger, MINUTE + 5))
    beat(resumed_again, range(7 * 60, 8 * 60))
    assert close(resumed_again, MINUTE + 7)["gaps"] == {str(MINUTE + 6): 60, str(MINUTE + 7): 0}


def test_the_marker_after_a_stop_has_each_minute_of_a_week() -> None:
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, range(60))
    resumed_ledger, back_minute = resume(close(partition_ledger, MINUTE)), MINUTE + 7 * 1440
    beat(resumed_ledger, range(7 * 86400, 7 * 86400 + 60), answers={"503": 1})
    marker = close(resumed_ledger, back_minute)
    silent_minutes = {str(minute): 60 for minute in range(MINUTE + 1, back_minute)}
    assert marker["gaps"] == silent_minutes | {str(back_minute): 0}
    store = MinuteStore()
    store.take(b"closed/0", orjson.dumps(marker))
    assert {store.intake("flights", minute).gap_s for minute in range(MINUTE + 1, back_minute)} == {60}
    assert store.intake("flights", back_minute).failed == 60


def test_a_marker_of_before_is_read_too() -> None:
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, range(60))
    marker = close(partition_ledger, MINUTE)
    del marker["ack_reported"], marker["answers"]
    resumed_ledger = resume(marker)
    beat(resumed_ledger, range(120, 180))
    assert close(resumed_ledger, MINUTE + 2)["gaps"] == {str(MINUTE + 2): 0}


def test_reports_of_collect_are_no_heartbeat_of_ingest_but_say_what_was_accepted() -> None:
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, range(60))
    ranges = {"flights": {str(MINUTE + 1): [[0, 4]]}}
    beat(partition_ledger, range(60, 120), service="collect", epoch="c", pipes=ranges)
    assert close(partition_ledger, MINUTE + 1)["gaps"] == {str(MINUTE): 0, str(MINUTE + 1): 60}
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, range(2), service="collect", epoch="c", pipes=ranges)
    partition_ledger.begin(OffsetSnapshot((MINUTE + 2) * 60_000_000, 2, {}, dict(partition_ledger.positions)))
    [minute_result] = partition_ledger.settle()
    [unresolved] = minute_result.unresolved
    assert (unresolved.hop, unresolved.state, len(unresolved.ids)) == ("ingest", "lost", 5), (
        "the broker lost what collect wrote"
    )


def test_the_releases_of_ingest_are_those_of_processes_that_report() -> None:
    """A process of a release before 0.1.0rc2 does not tell its own."""
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, [1])
    beat(partition_ledger, [1], epoch="b", release="0.1.0rc2")
    beat(partition_ledger, [1], epoch="c", release="9")
    beat(partition_ledger, [1], epoch="d", release="8", service="collect")
    activity = partition_ledger.ingest
    assert activity.releases() == {"", "0.1.0rc2", "9"}
    beat(partition_ledger, [2], epoch="c", release="9", closed=True)
    assert activity.releases() == {"", "0.1.0rc2"}
    beat(partition_ledger, [20], epoch="b", release="0.1.0rc2")
    assert activity.releases() == {"0.1.0rc2"}


def test_minutes_that_a_clock_ahead_closed_are_told_again_when_they_end() -> None:
    partition_ledger, store = PartitionLedger(0, RULES), MinuteStore()

    def tell(minute: int) -> None:
        """Close minutes up to this one by the clock of now."""
        store.take(record_keys.closed(0), orjson.dumps(close(partition_ledger, minute)))

    beat(partition_ledger, range(60))
    tell(MINUTE)
    tell(MINUTE + 30)
    assert store.gaps[MINUTE + 1] == {0: 60}
    tell(MINUTE)
    beat(partition_ledger, range(60, 180))
    partition_ledger = resume(close(partition_ledger, MINUTE))
    assert partition_ledger.closed_minute == MINUTE + 30
    assert partition_ledger.restart_points()["accepted"] == 60
    partition_ledger.positions["accepted"] = 60
    beat(partition_ledger, range(60, 180))
    tell(MINUTE + 2)
    assert [store.gaps[MINUTE + minutes] for minutes in range(4)] == [{0: 0}, {0: 0}, {0: 0}, {0: 60}]
    assert store.closed_minute(1) == MINUTE + 30
    assert store.retold == {MINUTE + 1, MINUTE + 2}


def test_a_clock_that_was_behind_tells_nothing_of_minutes_before_a_restart() -> None:
    partition_ledger = PartitionLedger(0, RULES)
    beat(partition_ledger, range(120))
    partition_ledger = resume(close(partition_ledger, MINUTE + 1))
    close(partition_ledger, MINUTE - 60)
    assert close(partition_ledger, MINUTE + 1)["gaps"] == {}


def test_answers_in_a_topic_that_is_read_again_are_counted_once() -> None:
    activity = IngestActivity()
    report = AckReport("a", answers={"503": 1}, paused={"flights": 1})
    for second in (1, 2):
        activity.add(second, (MINUTE * 60 + second) * 1000, report)
    activity.begin_again()
    activity.add(1, (MINUTE * 60 + 1) * 1000, report)
    activity.begin_again()
    for second in (1, 2, 3):
        activity.add(second, (MINUTE * 60 + second) * 1000, report)
    assert (activity.answers(MINUTE), activity.paused(MINUTE)) == ((3, 3), {"flights": 3})
