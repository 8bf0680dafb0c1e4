"""A record of hifi's own topics with a header name that is not UTF-8 keeps its data, and stops none of its readers."""

from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from hifi.kafka.adaptive_fetcher import BareRecords
from hifi.kafka.foreign_records import CorruptBatch, UnreadRecord
from hifi.kafka.own_records import KeptBatches, OwnRecords
from hifi.record.headers import REFUSED
from hifi.record.identity import identity
from hifi.runtime.errors import NotAnEvent

TP = TopicPartition("raw", 3)
EVENT = ("hifi", b"2;flights;7;9;1700000000000000;28333333;00000000000000ff:12")
UTF8, LATIN = "h\u00e4der".encode(), b"h\xe4?der"
LZ4 = 3


def batch(first_offset: int, bad: set[int], codec: int = 0, transactional: bool = False) -> bytes:
    """Three records `<offset>` with two headers, of which some have a name that is not UTF-8."""
    # A codec would hide the bytes to change: batches with one are made of single changed records only.
    builder = DefaultRecordBatchBuilder(
        2, codec, int(transactional), 9 if transactional else -1, 0, 0, 1 << 20
    )
    for number in range(3):
        name = "h\u00e4der" if first_offset + number in bad else "header"
        headers = [EVENT, (name, b"x"), ("none", None)]
        builder.append(number, 1_700_000_000_000 + number, b"key", b"%d" % (first_offset + number), headers)
    data: bytearray = builder.build()
    data = bytearray(bytes(data).replace(UTF8, LATIN))
    data[:8] = first_offset.to_bytes(8, "big")
    data[17:21] = calc_crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def records_of(
    fetched: bytes,
    records_class: type[OwnRecords] = OwnRecords,
    *,
    first: int = 5,
    aborted: Any = (),
    isolation: int = 0,
) -> OwnRecords:
    return records_class(TP, KeptBatches(fetched), aborted, first, None, None, True, isolation)


@pytest.mark.parametrize("records_class", [OwnRecords, BareRecords])
@pytest.mark.parametrize("bad", [{5}, {7}, {9}, {8, 9, 10}, set(range(5, 14))])
def test_a_record_with_a_header_name_that_is_not_utf8_keeps_its_data_and_its_neighbours_pass(
    records_class: type[OwnRecords], bad: set[int]
) -> None:
    fetched = batch(5, bad) + batch(8, bad) + batch(11, bad)
    partition_records = records_of(fetched, records_class)
    records = list(partition_records)
    assert [record.offset for record in records] == list(range(5, 14))
    assert [(record.key, record.value) for record in records] == [(b"key", b"%d" % n) for n in range(5, 14)]
    assert {record.offset for record in records if isinstance(record, UnreadRecord)} == bad
    assert [record.timestamp % 1000 for record in records] == [0, 1, 2] * 3
    assert partition_records.next_fetch_offset == 14
    for record in records:
        if record.offset in bad:
            assert [name for name, _ in record.headers] == [REFUSED, "h??der", "none"]
            problem = (
                f"the record at offset {record.offset} of raw\\[3\\] has a header whose name is not UTF-8"
            )
            with pytest.raises(NotAnEvent, match=problem):
                identity(record.headers)
        else:
            assert record.headers[1] == ("header", b"x")


def test_a_fetch_from_the_middle_of_a_batch_gives_what_follows_only() -> None:
    assert [record.offset for record in records_of(batch(5, {5, 7}), first=6)] == [6, 7]


def test_records_of_an_aborted_transaction_are_left_out_of_a_fetch_that_is_read_with_care() -> None:
    fetched = batch(5, set(), transactional=True) + batch(8, {9})
    records = records_of(fetched, aborted=[(9, 5)], isolation=1)
    assert [record.offset for record in records] == [8, 9, 10]


def test_a_corrupt_batch_is_told_after_the_records_in_front_of_it() -> None:
    corrupt = bytearray(batch(8, set()))
    corrupt[-1] ^= 1
    for bad in (set[int](), {6}):
        partition_records = records_of(batch(5, bad) + bytes(corrupt))
        assert [record.offset for record in partition_records] == [5, 6, 7]
        assert partition_records.next_fetch_offset == 8
    with pytest.raises(CorruptBatch, match="offset 8 has a wrong checksum"):
        next(records_of(bytes(corrupt), first=8))


def test_a_record_without_defects_is_read_by_aiokafka() -> None:
    assert {type(record) for record in records_of(batch(5, set()))} == {ConsumerRecord}
