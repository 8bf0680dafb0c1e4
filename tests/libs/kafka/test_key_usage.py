"""Usage of write keys: whatever is written again, late or not at all, each acknowledged event counts once."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.kafka.key_usage import AcceptedTotal, KeyDay, KeyUsage, KeyUsageCounts
from hifi.record.record import Record

DAY = 20_000
KEYS = (("orders", "k1"), ("orders", "k2"), ("flights", "k1"))
REQUEST = st.tuples(
    st.integers(0, 2),  # process
    st.sampled_from(KEYS),
    st.lists(st.tuples(st.integers(DAY * 1440 - 3, DAY * 1440 + 3), st.integers(0, 9)), max_size=5),
)
STEP = st.one_of(REQUEST, st.tuples(st.integers(0, 2), st.sampled_from(("write", "fail", "again"))))


def records(sizes: list[int]) -> list[Record]:
    return [Record(b"k", bytes(size) if size else None, []) for size in sizes]


class Processes:
    """Processes of ingest that count, a reader of the topic, and what was really acknowledged."""

    def __init__(self) -> None:
        self.counts = [KeyUsageCounts(f"p{number}") for number in range(3)]
        self.written: defaultdict[int, list[Record]] = defaultdict(list)
        self.usage = KeyUsage()
        self.truth: defaultdict[KeyDay, AcceptedTotal] = defaultdict(AcceptedTotal)

    def accept(self, process: int, pipe: str, key: str, rows: list[tuple[int, int]]) -> None:
        sizes = [size for _, size in rows]
        self.counts[process].add(pipe, key, [minute for minute, _ in rows], records(sizes))
        for minute, size in rows:
            key_day = KeyDay(pipe, key, minute // 1440)
            self.truth[key_day] = self.truth[key_day].plus(AcceptedTotal(1, size))

    def report(self, process: int, outcome: str) -> None:
        taken_counts = self.counts[process].take()
        if outcome == "fail":
            self.counts[process].restore(taken_counts)
            return
        self.written[process] += self.counts[process].records(taken_counts)
        records = self.written[process] if outcome == "again" else self.counts[process].records(taken_counts)
        for record in records:
            self.usage.take(record.key, record.value)


@given(st.lists(STEP, max_size=60))
def test_the_sum_over_all_processes_is_what_was_acknowledged(steps: list[tuple[Any, ...]]) -> None:
    processes = Processes()
    for process, *action in [*steps, *((process, "write") for process in range(3))]:
        if len(action) == 2:
            (pipe, key), rows = action
            processes.accept(process, pipe, key, rows)
        else:
            processes.report(process, action[0])
    usage, true_counts = processes.usage, processes.truth
    assert usage.between(DAY - 1, DAY) == true_counts
    assert usage.between(DAY, DAY) == {day: total for day, total in true_counts.items() if day.day == DAY}


def test_a_process_forgets_days_that_are_over_once_they_are_written() -> None:
    counts = KeyUsageCounts("p")
    for day in range(DAY, DAY + 10):
        counts.add("orders", "k1", [day * 1440], records([1]))
        assert len(counts.records(counts.take())) == 1
    assert len(counts._totals) <= 4
    counts.add("orders", "k1", [(DAY + 20) * 1440], records([1]))
    counts.restore(counts.take())
    counts.add("orders", "k1", [(DAY + 40) * 1440], records([1]))
    days = sorted((record.key or b"").split(b"/")[2] for record in counts.records(counts.take()))
    assert days == [b"20020", b"20040"]


@pytest.mark.parametrize("key", [None, b"", b"a/b/c", b"a/b/x/p", b"a/b/1/p/q", b"\xff/b/1/p"])
def test_a_record_that_is_not_one_is_refused(key: bytes | None) -> None:
    with pytest.raises(ValueError, match="not the record of a key's usage"):
        KeyUsage().take(key, b'{"events":1,"bytes":1}')


@pytest.mark.parametrize("value", [None, b"", b"[]", b"{}", b'{"events":1}', b'{"events":"x","bytes":1}'])
def test_a_value_that_is_not_one_is_refused(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="not the record of a key's usage"):
        KeyUsage().take(b"a/b/1/p", value)
