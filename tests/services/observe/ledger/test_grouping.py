"""Records are grouped by their packed headers, whichever release wrote them."""

import orjson
import pytest
from tests.support.observe.simulated_mesh import Row, identity

from hifi.record.fields import packed
from hifi.record.headers import HOP, IDENTITY
from hifi_observe.ledger.backlog import Backlog
from hifi_observe.ledger.durations import Transit, measure
from hifi_observe.ledger.grouping import group_records
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.record_batch import RecordBatch
from hifi_observe.ledger.stage import receipt

EPOCH = b"0" * 15 + b"a"
MINUTE = 28_333_333


def row(offset: int, **extra_fields: bytes) -> Row:
    fields = identity(b"%b:%d" % (EPOCH, offset), MINUTE)
    fields |= {f"hifi_{name}": value for name, value in extra_fields.items()}
    return Row(offset, MINUTE * 60_000, packed(fields))


def altered(changed_row: Row, header: str, value: bytes) -> Row:
    return Row(
        changed_row.offset,
        changed_row.timestamp,
        [(name, value if name == header else text) for name, text in changed_row.headers],
    )


def grouped(batch: RecordBatch) -> list[tuple[str, list[int]]]:
    return [(group.epoch, group.sequences) for records in batch.minutes.values() for group in records.groups]


@pytest.mark.parametrize("suffix", [b";new", b";", b";a:7", b";x;;y:z"])
def test_fields_that_a_later_release_appended_are_skipped(suffix: bytes) -> None:
    newer_rows = [
        altered(older_row, IDENTITY, older_row.headers[0][1] + suffix) for older_row in map(row, range(3))
    ]
    rows = [row(3), *newer_rows[:2], row(4), altered(newer_rows[2], HOP, b"1;2;crm;w;;;new")]
    batch = group_records("enriched", rows, 0)
    assert batch.foreign == 0
    assert sorted(number for _, numbers in grouped(batch) for number in numbers) == [0, 1, 2, 3, 4]
    assert {epoch for epoch, _ in grouped(batch)} == {EPOCH.decode()}


def test_a_record_of_a_format_that_is_not_known_is_counted_and_not_read() -> None:
    other_identity = row(1).headers[0][1].replace(b"2;", b"1;", 1)
    batch = group_records("raw", [row(0), altered(row(1), IDENTITY, other_identity), row(2)], 0)
    assert (batch.foreign, grouped(batch)) == (1, [(EPOCH.decode(), [0, 2])])


@pytest.mark.parametrize("text", [b"-1", b"", b"x", b"1 ;2"])
def test_a_malformed_sequence_is_counted_and_hurts_no_other_record(text: bytes) -> None:
    prefix = row(1).headers[0][1].rpartition(b":")[0]
    broken_row = altered(row(1), IDENTITY, prefix + b":" + text)
    batch = group_records("raw", [row(0), broken_row, row(2)], 0)
    assert (batch.foreign, grouped(batch)) == (1, [(EPOCH.decode(), [0, 2])])


def test_a_record_whose_time_is_malformed_counts_but_is_not_measured() -> None:
    rows = [row(0), altered(row(1), HOP, b"soon"), row(2)]
    (group,) = next(iter(group_records("raw", rows, 0).minutes.values())).groups
    assert (group.sequences, group.times is not None) == ([0, 1, 2], True)
    assert group.times is not None
    assert len(group.times.complete().in_us) == 2


def test_receipts_with_different_answers_are_grouped_apart() -> None:
    values = {"destination": b"crm", "outcome": b"delivered"}
    rows = [row(0, status=b"200", **values), row(1, status=b"202", **values), row(2, status=b"200", **values)]
    assert [numbers for _, numbers in grouped(group_records("receipts", rows, 0))] == [[0, 2], [1]]


def test_a_transit_is_known_whichever_end_is_read_first() -> None:
    transit = Transit()
    assert transit.appended("raw", [b"a", b"b"], [10, 20]) == []
    assert transit.fetched("raw", [b"b", b"c"], [25, 40]) == [5]
    assert transit.appended("raw", [b"c", b"d"], [30, 50]) == [10]
    assert transit.fetched("raw", [b"a", b"d"], [11, 49]) == [1, 0]


@pytest.mark.parametrize(
    ("header", "value"),
    [(IDENTITY, None), (HOP, None), (IDENTITY, b"\xff"), (HOP, b"9" * 30), (HOP, b"9" * 5000)],
)
@pytest.mark.parametrize("kind", ["raw", "normalized", "enriched", "dead-letter", "retry-in.5s", "receipts"])
def test_no_record_of_another_writer_stops_the_reading(kind: str, header: str, value: bytes | None) -> None:
    broken_row = altered(row(1), header, value)  # type: ignore[arg-type]
    pipe_minute = PipeMinute("p", MINUTE)
    batch = group_records(kind.partition(".")[0], [broken_row, row(2), broken_row], 0)
    for records in batch.minutes.values():
        measure(kind, pipe_minute, [group for group in records.groups if group.times], Transit())
    orjson.dumps(pipe_minute.dump(), option=orjson.OPT_NON_STR_KEYS)


def test_numbers_of_another_writer_have_64_bits() -> None:
    assert [retry(b"9" * 25), retry(b"-1"), retry(b"x"), retry(b"7")] == [0, 0, 0, 7]
    prefix = row(1).headers[0][1].rpartition(b":")[0]
    batch = group_records("raw", [altered(row(1), IDENTITY, prefix + b":" + b"9" * 19)], 0)
    for records in batch.minutes.values():
        for group in records.groups:
            group.bind(PipeMinute("p", MINUTE), -1)
    Backlog().put(batch.columns)


def retry(text: bytes) -> int:
    return receipt(b"crm", b"retry", text)[0].retry_pass
