"""A consumer's bare records say the same as aiokafka's, and leave the position at the same offset."""

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from hifi.kafka.adaptive_fetcher import BareRecords
from hifi.kafka.own_records import KeptBatches, OwnRecords

TP = TopicPartition("topic", 0)
FIELDS = ("offset", "timestamp", "key", "value")
LZ4 = 3


def batch(first_offset: int, count: int, compression: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, compression, 0, 1, 0, 0, 1 << 20)
    for number in range(count):
        value = None if number % 3 == 0 else b"value %d" % number
        headers = [("hifi", b"%d" % number), ("ce_time", b"")][: number % 3]
        builder.append(number, 1_700_000_000_000 + number, b"key %d" % number, value, headers)
    data: bytearray = builder.build()
    data[:8] = first_offset.to_bytes(8, "big")  # the checksum does not cover it
    return bytes(data)


FETCHED = batch(5, 7) + batch(12, 1, LZ4) + batch(20, 40, LZ4)


async def read(
    records_class: type[PartitionRecords], portion: int, fetched: bytes = FETCHED
) -> list[tuple[Any, ...]]:
    """The records from offset 7 on, taken in portions, each portion with the position after it."""
    assignment = Assignment([TP])
    state = assignment.state_value(TP)
    state.seek(7)
    batches_class = KeptBatches if issubclass(records_class, OwnRecords) else MemoryRecords
    partition_records = records_class(TP, batches_class(fetched), [], 7, None, None, True, 0)
    result = FetchResult(TP, assignment=assignment, partition_records=partition_records, backoff=0)
    portions: list[tuple[Any, ...]] = []
    while result.has_more():
        records = [
            (*(getattr(record, name) for name in FIELDS), list(record.headers))
            for record in result.getall(portion)
        ]
        portions.append((records, state.position))
    return portions


@pytest.mark.parametrize("portion", [1, 3, 250])
async def test_bare_records_are_those_that_aiokafka_makes(portion: int) -> None:
    portions = await read(BareRecords, portion)
    assert portions == await read(PartitionRecords, portion)
    assert sum(len(records) for records, _ in portions) == 46
    assert portions[-1][1] == 60


async def test_a_bare_record_of_a_corrupt_batch_is_not_read() -> None:
    fetched = batch(5, 7)
    with pytest.raises(CorruptRecordException):
        await read(BareRecords, 250, fetched[:-1] + bytes([fetched[-1] ^ 1]))
