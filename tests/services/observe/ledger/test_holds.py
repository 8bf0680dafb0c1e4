"""Holds of a pipe's watermark outlast its minutes and restarts."""

import orjson
from tests.support.observe.simulated_mesh import TOPICS, Row, identity

from hifi.record.fields import packed
from hifi_observe.ledger.closing import ClosingRules, OffsetSnapshot
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.minutes.merged_minute import dump, load_pipe_minute

EPOCH = "0" * 15 + "a"
MINUTE = 28_333_333
DAY_US = 86_400_000_000
START_US = (MINUTE + 1) * 60_000_000
RULES = ClosingRules(settle_s=10)
DONE = {"raw": 1, "normalized": 1, "enriched": 1, "parked": 1}


def row(offset: int, **extra_fields: bytes) -> Row:
    """A row of the event, with further fields."""
    fields = identity(f"{EPOCH}:0".encode(), MINUTE)
    fields |= {f"hifi_{name}": value for name, value in extra_fields.items()}
    return Row(offset, MINUTE * 60_000, packed(fields))


class Partition:
    """A ledger with what it wrote, from which it can be restored."""

    def __init__(self) -> None:
        self.ledger = PartitionLedger(0, RULES)
        self.ledger.positions = dict.fromkeys(TOPICS, 0)
        self.shares: dict[tuple[str, int], bytes] = {}
        self.marker = b""

    def close(self, days: float, **committed: int) -> None:
        """Close minutes some days after the first one."""
        offsets = DONE | {name.replace("_", "-"): offset for name, offset in committed.items()}
        now_us = START_US + round(days * DAY_US) + 60_000_000
        self.ledger.begin(OffsetSnapshot(now_us, 0, offsets, dict(self.ledger.positions)))
        for minute_result in self.ledger.settle():
            key = minute_result.pipe_minute.pipe, minute_result.pipe_minute.minute
            self.shares[key] = orjson.dumps(dump(minute_result, 0, now_us), option=orjson.OPT_NON_STR_KEYS)
        self.marker = orjson.dumps(self.ledger.marker())

    def restart(self, *, minutes_are_kept: bool = True) -> None:
        """Die, and start again from the written records."""
        pipe_minutes = [load_pipe_minute(orjson.loads(share)) for share in self.shares.values()]
        marker = orjson.loads(self.marker)
        self.ledger = PartitionLedger.resume(0, RULES, marker, pipe_minutes if minutes_are_kept else [])

    def deliver_parked(self) -> None:
        """Take an event up to its parked delivery."""
        self.ledger.take("raw", [row(0)])
        self.ledger.take("normalized", [row(0)])
        self.ledger.take("enriched", [row(0, to=b"crm")])
        self.ledger.take("parked", [row(0, destination=b"crm", **{"pass": b"2"})])

    def open_numbers(self) -> dict[str, int]:
        """Number of events that are open at the destination, by hop."""
        opens = self.ledger.open_events.look(lambda _: ("crm",)).get("flights", {})
        return dict(opens["crm"].numbers) if "crm" in opens else {}


def test_a_parked_delivery_holds_the_watermark_until_it_has_its_outcome_however_old_it_is() -> None:
    partition = Partition()
    partition.deliver_parked()
    for days in (0, 3, 8, 29):
        partition.close(days)
        assert partition.open_numbers() == {"parked": 1}, days
        partition.restart()
        assert partition.open_numbers() == {"parked": 1}, days
    partition.ledger.take("retry-out", [row(0, destination=b"crm", **{"pass": b"3"})])
    partition.close(29.1, retry_out=1)
    partition.ledger.take("receipts", [row(0, destination=b"crm", outcome=b"delivered")])
    partition.close(29.2, retry_out=1)
    assert partition.open_numbers() == {}


def test_a_lost_event_holds_the_watermark_for_a_week() -> None:
    partition = Partition()
    partition.ledger.take("raw", [row(0)])
    for days, expected in ((0, {"normalize": 1}), (6.9, {"normalize": 1}), (7.1, {})):
        partition.close(days)
        assert partition.open_numbers() == expected
        partition.restart(minutes_are_kept=days < 7)


def test_what_waits_for_longer_than_it_is_followed_holds_it_until_its_records_are_deleted() -> None:
    partition = Partition()
    partition.deliver_parked()
    partition.close(0)
    partition.close(32)
    assert not partition.ledger.pipe_minutes, "memory is bounded"
    for days in (32.0, 40.0):
        partition.close(days)
        assert partition.open_numbers() == {"ingest": 1}, days
        partition.restart(minutes_are_kept=False)
    partition.ledger.take("retry-out", [row(0, destination=b"crm", **{"pass": b"3"})])
    for days, expected in ((41.0, {"ingest": 1}), (64.0, {"ingest": 1}), (71.9, {"ingest": 1}), (72.1, {})):
        partition.close(days)
        assert partition.open_numbers() == expected, days


def test_records_that_were_deleted_unread_hold_it_for_a_week_over_restarts() -> None:
    partition = Partition()
    partition.ledger.open_events.holds.deleted_unread(7, RULES.follow_s)
    for days, expected in ((0, 7), (3, 7), (6.9, 7), (7.1, 0)):
        partition.close(days)
        assert partition.ledger.open_events.holds.unread == expected
        partition.restart()
        assert partition.ledger.open_events.holds.unread == expected


def test_events_of_minutes_long_past_hold_it_for_a_week_over_restarts() -> None:
    partition = Partition()
    partition.close(1)
    partition.ledger.take("raw", [row(0)])
    for days, expected in ((1, {"ingest": 1}), (4, {"ingest": 1}), (7.9, {"ingest": 1}), (8.1, {})):
        partition.close(days)
        assert partition.open_numbers() == expected
        partition.restart()
        assert partition.open_numbers() == expected


def test_a_marker_of_a_release_before_holds_nothing() -> None:
    partition = Partition()
    partition.close(0)
    marker = orjson.loads(partition.marker)
    del marker["holds"]
    ledger = PartitionLedger.resume(0, RULES, marker, [])
    assert (ledger.open_events.holds.unread, ledger.open_events.holds.dump()) == (0, {})
