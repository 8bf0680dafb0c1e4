"""The rows of a view are those that plain Python computes, whatever the order, copies, batches and faults."""

import itertools
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.view.row_records import LOGS, NOW_US, data, file_of, headers, view

from hifi.pipe.view import View
from hifi_view.store.events import EventReader
from hifi_view.store.plan import Account, PartitionRead
from hifi_view.store.row_file import RowFile, accounts, refusals

KEEP_US = 3600 * 1_000_000
PARTITIONS = 3


class Sent(NamedTuple):
    """A record of `enriched`."""

    partition: int
    raw: int
    key: str | None
    delay: Any
    pipe: str
    age_us: int
    time_s: int


class Fault(Exception):
    """Stands for the death of the process between two statements."""


class FailingConnection(sqlite3.Connection):
    """Fails before the statement with a number."""

    statements = 0
    fails_at = -1

    def _count(self) -> None:
        cls = type(self)
        cls.statements += 1
        if cls.statements == cls.fails_at:
            raise Fault

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._count()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._count()
        return super().executemany(*arguments)


def connect_failing(*arguments: Any, **options: Any) -> sqlite3.Connection:
    return sqlite3.connect(*arguments, factory=FailingConnection, **options)


def oracle(view: View, records: list[Sent], now_us: int) -> dict[str, int | None]:
    """Key to delay: the event with the highest place, of those that have not expired."""
    newest_rows: dict[str, tuple[Any, ...]] = {}
    for record in records:
        if record.pipe != "flights" or not record.key or record.age_us > KEEP_US:
            continue
        rank = ((record.time_s,) if view.order == "time" else ()) + (record.partition, record.raw)
        delay = record.delay if isinstance(record.delay, int) and not isinstance(record.delay, bool) else None
        newest_rows[record.key] = max(
            newest_rows.get(record.key, (-1,)), (*rank, delay), key=lambda row: row[:-1]
        )
    return {key: row[-1] for key, row in newest_rows.items()}


def read_in_batches(
    reader: EventReader, records: list[Sent], cuts: list[int], start: dict[int, int] | None = None
) -> Iterator[list[PartitionRead]]:
    """The records, each partition in the order of its list, in batches; offsets count from 0."""
    offsets = dict.fromkeys(range(PARTITIONS), 0) if start is None else dict(start)
    bounds = sorted({0, len(records), *(cut % (len(records) + 1) for cut in cuts)})
    for batch_start, batch_end in itertools.pairwise(bounds):
        reads: dict[int, PartitionRead] = {}
        for record in records[batch_start:batch_end]:
            partition_read = reads.setdefault(
                record.partition,
                PartitionRead(record.partition, offsets[record.partition], offsets[record.partition]),
            )
            # The time of a day in 2025, before acceptance.
            time = b"2025-11-20T00:%02d:%02dZ" % divmod(record.time_s, 60)
            record_headers = headers(
                record.raw, pipe=record.pipe, accepted_us=NOW_US - record.age_us, time=time
            )
            value = data(flight=record.key, carrier="UA", delay=record.delay)
            partition_read.records.append(
                (
                    partition_read.next_offset,
                    reader.read(record_headers, value, record.partition, partition_read.next_offset),
                )
            )
            partition_read.next_offset += 1
            offsets[record.partition] = partition_read.next_offset
        yield list(reads.values())


def rows_of(path: Path) -> dict[str, int | None]:
    with sqlite3.connect(path) as database:
        return dict(database.execute("SELECT flight, delay FROM flights_now"))


def total(path: Path) -> Account:
    total_account = Account()
    with sqlite3.connect(path) as database:
        for account_range in accounts(database):
            assert account_range.account.balanced
            assert account_range.account.read == account_range.next_offset - account_range.first
            total_account.add(account_range.account)
    return total_account


SENT = st.builds(
    Sent,
    partition=st.integers(0, PARTITIONS - 1),
    raw=st.integers(0, 30),
    key=st.sampled_from(["UA1", "UA2", "DL7", "", None]),
    delay=st.one_of(st.integers(-5, 5), st.sampled_from([True, "late", None, 1.5])),
    pipe=st.sampled_from(["flights", "flights", "flights", "other"]),
    age_us=st.sampled_from([0, 1_000_000, KEEP_US + 1_000_000]),
    time_s=st.integers(0, 20),
)


def distinct(records: list[Sent]) -> list[Sent]:
    """One record for each place in `raw`: there is only one event, and copies of it are equal."""
    first: dict[tuple[int, int], Sent] = {}
    return [first.setdefault((record.partition, record.raw), record) for record in records]


@pytest.mark.parametrize("order", ["offset", "time"])
def test_an_older_event_changes_no_row(tmp_path: Path, order: str) -> None:
    declared_view = view(order=order)
    newer, older = Sent(0, 7, "UA1", 7, "flights", 0, 7), Sent(0, 3, "UA1", 3, "flights", 0, 3)
    file = RowFile(file_of(tmp_path), declared_view, LOGS)
    for batch in read_in_batches(EventReader(declared_view), [newer, older, newer], [1, 2]):
        file.apply(batch, 0)
    file.close()
    assert rows_of(file_of(tmp_path)) == {"UA1": 7}
    assert (total(file_of(tmp_path)).applied, total(file_of(tmp_path)).older) == (1, 2)


@pytest.mark.parametrize("key", [["flight"], ["delay"], ["flight", "delay"]])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 150])
def test_older_events_of_many_keys_change_no_row(tmp_path: Path, key: list[str], count: int) -> None:
    fields = {"flight": "text", "delay": "int"}
    declared_view = view(order="time", key=key, fields=fields)
    newer = [Sent(0, number, f"UA{number}", number, "flights", 0, 9) for number in range(count)]
    older = [record._replace(raw=record.raw + count, time_s=3) for record in newer]
    file = RowFile(file_of(tmp_path), declared_view, LOGS)
    for batch in read_in_batches(EventReader(declared_view), [*newer, *older], [count]):
        file.apply(batch, 0)
    file.close()
    assert rows_of(file_of(tmp_path)) == {f"UA{number}": number for number in range(count)}
    assert (total(file_of(tmp_path)).applied, total(file_of(tmp_path)).older) == (count, count)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    records=st.lists(SENT, max_size=40).map(distinct),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    order=st.sampled_from(["offset", "time"]),
    shuffle=st.randoms(use_true_random=False),
)
def test_order_copies_and_batches_do_not_change_rows(
    records: list[Sent], cuts: list[int], order: str, shuffle: Any
) -> None:
    declared_view = view(keep="1h", order=order)
    reader = EventReader(declared_view)
    expected = oracle(declared_view, records, NOW_US)
    for sent_records in (records, records + records):
        shuffled_records = list(sent_records)
        shuffle.shuffle(shuffled_records)
        with tempfile.TemporaryDirectory() as folder:
            path = file_of(Path(folder))
            file = RowFile(path, declared_view, LOGS)
            for batch in read_in_batches(reader, shuffled_records, cuts):
                file.apply(batch, NOW_US - KEEP_US)
            rows = file.rows
            file.close()
            assert rows_of(path) == expected
            assert rows == len(expected)
            assert total(path).read == len(shuffled_records)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    records=st.lists(SENT, min_size=1, max_size=25).map(distinct),
    cuts=st.lists(st.integers(0, 25), max_size=4),
    fails_at=st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
def test_a_death_between_any_two_statements_changes_neither_rows_nor_the_account(
    records: list[Sent], cuts: list[int], fails_at: list[int]
) -> None:
    declared_view = view(keep="1h")
    reader = EventReader(declared_view)
    with tempfile.TemporaryDirectory() as folder:
        path = file_of(Path(folder))
        RowFile(path, declared_view, LOGS).close()
        unread = records
        start = dict.fromkeys(range(PARTITIONS), 0)
        for failing_statement in [*fails_at, -1]:
            FailingConnection.fails_at, FailingConnection.statements = -1, 0
            file = RowFile(path, declared_view, LOGS, connect_failing)
            assert not file.made_because
            positions = file.positions()
            start = {partition: positions.get(partition, 0) for partition in range(PARTITIONS)}
            unread = _behind(records, start)
            FailingConnection.fails_at, FailingConnection.statements = failing_statement, 0
            try:
                for batch in read_in_batches(reader, unread, cuts, start):
                    file.apply(batch, NOW_US - KEEP_US)
            except Fault:
                pass
            FailingConnection.fails_at = -1
            file.close()
        assert rows_of(path) == oracle(declared_view, records, NOW_US)
        assert total(path).read == len(records)


def _behind(records: list[Sent], start: dict[int, int]) -> list[Sent]:
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    unread = []
    for record in records:
        if offsets[record.partition] >= start[record.partition]:
            unread.append(record)
        offsets[record.partition] += 1
    return unread


def test_each_statement_of_a_batch_can_be_the_last_one(tmp_path: Path) -> None:
    """Begin, rows, offsets, account, commit: after each of them the file is as it was before the batch."""
    declared_view = view(keep="1h")
    reader = EventReader(declared_view)
    path = file_of(tmp_path)
    records = [Sent(0, 1, "UA1", 1, "flights", 0, 0), Sent(1, 1, None, 1, "flights", 0, 0)]
    later_records = [Sent(0, 2, "UA1", 2, "flights", 0, 0), Sent(1, 2, "DL7", 2, "flights", 0, 0)]
    FailingConnection.fails_at = -1
    file = RowFile(path, declared_view, LOGS, connect_failing)
    for batch in read_in_batches(reader, records, []):
        file.apply(batch, 0)
    state_before = rows_of(path), file.positions(), total(path)
    (batch,) = read_in_batches(reader, later_records, [], {0: 1, 1: 1})
    failure_count = 0
    for fails_at in range(1, 50):
        FailingConnection.fails_at, FailingConnection.statements = fails_at, 0
        try:
            file.apply(batch, 0)
        except Fault:
            failure_count += 1
            FailingConnection.fails_at = -1
            assert (rows_of(path), file.positions(), total(path)) == state_before
            continue
        break
    FailingConnection.fails_at = -1
    assert failure_count >= 8
    assert rows_of(path) == {"UA1": 2, "DL7": 2}
    assert file.positions() == {0: 2, 1: 2}
    with sqlite3.connect(path) as database:
        assert [(event.event, event.reason) for event in refusals(database, 9)] == [
            ("00000000000000ab:1", "no-key")
        ]
    file.close()


@pytest.mark.parametrize("damage", ["cut", "overwritten", "not SQLite", "empty"])
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: str) -> None:
    declared_view, path = view(), file_of(tmp_path)
    file = RowFile(path, declared_view, LOGS)
    many_records = [Sent(0, number, f"UA{number}", number, "flights", 0, 0) for number in range(2000)]
    for batch in read_in_batches(EventReader(declared_view), many_records, []):
        file.apply(batch, 0)
    file.close()
    content = path.read_bytes()
    assert len(content) > 50_000
    match damage:
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "overwritten":
            path.write_bytes(content[:8192] + b"\xff" * 20_000 + content[28_192:])
        case "not SQLite":
            path.write_bytes(b"x" * 5000)
        case "empty":
            path.write_bytes(b"")
    file = RowFile(path, declared_view, LOGS)
    assert file.made_because == "it is damaged"
    assert (file.rows, file.positions()) == (0, {})
    file.close()


def test_a_file_of_another_declaration_or_log_is_made_anew(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    RowFile(path, view(), LOGS).close()
    kept_file = RowFile(path, view(description="other words"), LOGS)
    assert kept_file.made_because == ""
    kept_file.close()
    for declared_view, logs in (
        (view(keep="1h"), LOGS),
        (view(order="time"), LOGS),
        (view(fields={"carrier": "text"}), LOGS),
        (view(), LOGS._replace(raw="c" * 32)),
    ):
        file = RowFile(path, declared_view, logs)
        assert file.made_because == "the view or the stream's topics are other ones"
        file.close()


def test_old_rows_go_and_old_accounts_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hifi_view.store.row_file.RANGE_OFFSETS", 3)
    monkeypatch.setattr("hifi_view.store.row_file.RANGES", 4)
    declared_view, path = view(keep="1h"), file_of(tmp_path)
    file = RowFile(path, declared_view, LOGS)
    many_records = [Sent(0, number, f"UA{number}", number, "flights", number, 0) for number in range(60)]
    for batch in read_in_batches(EventReader(declared_view), many_records, list(range(60))):
        file.apply(batch, NOW_US - KEEP_US)
    with sqlite3.connect(path) as database:
        ranges = accounts(database)
    assert len(ranges) == 4
    assert [account_range.first for account_range in ranges[1:]] == [
        account_range.next_offset for account_range in ranges[:-1]
    ]
    assert total(path).applied == 60
    assert file.expire(NOW_US - 39) == 20
    assert file.rows == 40
    assert min(rows_of(path).values()) == 0  # type: ignore[type-var]
    file.expire(NOW_US + 1)
    file.close()
    # Changes are numbered on, though no row has the last number any more.
    file = RowFile(path, declared_view, LOGS)
    assert (file.rows, file.change) == (0, 60)
    file.close()
