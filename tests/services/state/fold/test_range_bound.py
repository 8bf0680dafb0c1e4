"""How many records a range has: few after a start and a failure, and as many as fit in memory."""

from typing import Any

from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.step import StepSource
from hifi_state.enriched_ranges import next_range
from hifi_state.fold.range_bound import MOST_BYTES, RangeBound, most_records
from hifi_state.step_turn import next_chunk

MIB = 1024 * 1024


def test_ranges_grow_from_a_few_records_while_what_they_make_fits() -> None:
    bound = RangeBound(50_000)
    sizes = []
    for _ in range(7):
        sizes.append(bound.records)
        bound.begin(bound.records)
        bound.passed(bound.records * 100)
    assert sizes == [50, 200, 800, 3_200, 12_800, 50_000, 50_000]


def test_a_range_that_fails_is_tried_with_a_quarter_of_its_records_down_to_one() -> None:
    bound = RangeBound(50_000)
    for _ in range(6):
        bound.begin(bound.records)
        bound.passed(0)
    bound.begin(3_000)
    bound.failed()
    assert bound.records == 750
    bound.failed()  # no range failed: Kafka was away
    assert bound.records == 750
    for _ in range(10):
        bound.begin(bound.records)
        bound.failed()
    assert bound.records == 1
    assert RangeBound(50_000).records < 64, "also the first range after the process has ended"


def test_what_fits_bounds_the_next_range_and_a_small_range_does_not_raise_the_bound() -> None:
    bound = RangeBound(50_000)
    bound.begin(50)
    bound.passed(50 * MIB)
    assert 0 < bound.records * MIB < MOST_BYTES
    bound.begin(bound.records // 2)
    bound.passed(1)
    assert bound.records * MIB < MOST_BYTES


def test_an_event_that_is_in_many_windows_counts_as_often() -> None:
    def most(**kind: Any) -> int:
        fields = {} if "first" in kind else {"fields": {"flights": "count(*)"}}
        source = {"kind": "step", "from": "flights", "key": {"carrier": "string"}, **kind, **fields}
        return most_records(StepSource.model_validate(source))

    tumbling = most(window={"tumbling": "10s"})
    assert most(window={"session": "10s"}) == tumbling > 50_000
    assert most(window={"size": "100m", "every": "1m"}) == tumbling // 100
    assert most(first="10s") == 5_000


def test_a_range_has_no_more_records_than_it_may_also_of_many_partitions() -> None:
    start_offsets = dict.fromkeys(range(64), 10)
    end_offsets = {partition: 11 + partition % 3 for partition in start_offsets}
    next_offsets = next_range(start_offsets, end_offsets, 5)
    read_counts = {
        partition: next_offsets[partition] - 10 for partition in start_offsets if next_offsets[partition] > 10
    }
    assert sum(read_counts.values()) == 5
    assert all(end_offsets[partition] == 13 for partition in read_counts), "those with most come first"
    assert next_range({0: 0, 1: 0}, {0: 90, 1: 10}, 50) == {0: 45, 1: 5}
    assert next_range({0: 0, 1: 0}, {0: 90, 1: 10}, 100) == {0: 90, 1: 10}
    assert next_range({0: 5}, {0: 5}, 1) == {0: 5}


def test_results_with_much_data_are_written_a_few_at_a_time() -> None:
    events = iter([SourceEvent(number, b"k", b"x" * 3 * MIB, [], 0) for number in range(7)])
    chunks = []
    while chunk := next_chunk(events):
        chunks.append([event.position for event in chunk])
    assert chunks == [[0, 1, 2], [3, 4, 5], [6]]
    assert len(next_chunk(iter([SourceEvent(0, b"k", b"x", [], 0)] * 2001))) == 2000
