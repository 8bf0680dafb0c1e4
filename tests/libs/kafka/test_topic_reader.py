"""Partitions are read to the end that they had at the beginning, and no further."""

from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition

from hifi.kafka.topic_reader import offset_ranges, read_ranges

A, B, EMPTY = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


@dataclass
class FakeRecord:
    offset: int


class FakeConsumer:
    """Offsets by partition, of which some were removed by compaction; record n was appended at 10 n."""

    def __init__(self, offsets: dict[TopicPartition, list[int]]) -> None:
        self.offsets = offsets
        self.positions: dict[TopicPartition, int] = {}
        self.grown = False

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: min(self.offsets[tp], default=0) for tp in tps}

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: max(self.offsets[tp], default=-1) + 1 for tp in tps}

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        offsets_by_partition = {
            tp: [n for n in self.offsets[tp] if n * 10 >= time_ms] for tp, time_ms in times.items()
        }
        return {
            tp: FakeRecord(later_offsets[0]) if later_offsets else None
            for tp, later_offsets in offsets_by_partition.items()
        }

    def assign(self, tps: list[TopicPartition]) -> None:
        self.positions = dict.fromkeys(tps, 0)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.positions[tp] = offset

    async def position(self, tp: TopicPartition) -> int:
        return self.positions[tp]

    async def getmany(self, *tps: TopicPartition, **_: int) -> dict[TopicPartition, list[FakeRecord]]:
        for offsets in self.offsets.values():
            if offsets and not self.grown:  # others go on writing
                offsets.append(offsets[-1] + 1)
        self.grown = True
        next_offsets = {tp: [n for n in self.offsets[tp] if n >= self.positions[tp]][:3] for tp in tps}
        self.positions |= {tp: offsets[-1] + 1 for tp, offsets in next_offsets.items() if offsets}
        return {tp: [FakeRecord(n) for n in offsets] for tp, offsets in next_offsets.items() if offsets}


async def test_every_record_up_to_the_end_is_read_in_the_order_of_its_partition() -> None:
    consumer = FakeConsumer({A: [2, 3, 5, 6, 9], B: [0, 1], EMPTY: []})
    ranges = await offset_ranges(consumer, [A, B, EMPTY])
    assert ranges == {A: range(2, 10), B: range(2), EMPTY: range(0)}
    read_offsets = [
        record.offset for records in [r async for r in read_ranges(consumer, ranges)] for record in records
    ]
    assert sorted(read_offsets) == sorted([2, 3, 5, 6, 9, 0, 1])
    assert [offset for offset in read_offsets if offset > 1] == [2, 3, 5, 6, 9]
    assert EMPTY not in consumer.positions


async def test_a_time_is_the_first_record_that_was_appended_then_or_later() -> None:
    consumer = FakeConsumer({A: [2, 3, 5], B: [0, 1], EMPTY: []})
    assert await offset_ranges(consumer, [A, B, EMPTY], since_ms=25) == {
        A: range(3, 6),
        B: range(2, 2),
        EMPTY: range(0),
    }
