"""A backlog holds the same records, whether they were added as those of one group or one by one."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.observe.simulated_mesh import Row, identity

from hifi.record.fields import packed
from hifi.record.headers import TO
from hifi_observe.ledger.backlog import Backlog
from hifi_observe.ledger.grouping import group_records
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.record_batch import RecordColumns
from hifi_observe.ledger.stage import EventStage

EPOCH = b"0" * 15 + b"a"
MINUTE = 28_333_333
DESTINATIONS = (b"a", b"b")
STAGE = EventStage("enriched")


def columns(rows: list[Row], pipe_minute: PipeMinute) -> RecordColumns:
    batch = group_records("enriched", rows, 0)
    for minute_records in batch.minutes.values():
        for group in minute_records.groups:
            group.bind(pipe_minute, -1)
    return batch.columns


def row(offset: int, destination: bytes) -> Row:
    fields = identity(b"%b:%d" % (EPOCH, offset), MINUTE) | {TO: destination}
    return Row(offset, MINUTE * 60_000 + offset, packed(fields))


@given(
    st.lists(st.lists(st.sampled_from(DESTINATIONS), max_size=5), max_size=5),
    st.lists(st.integers(0, 30), max_size=3),
)
def test_a_batch_counts_as_its_records_do(batches: list[list[bytes]], commits: list[int]) -> None:
    whole_minute, single_minute = PipeMinute("flights", MINUTE), PipeMinute("flights", MINUTE)
    whole, single = Backlog(), Backlog()
    next_offset = 0
    for destinations in batches:
        rows = [row(next_offset + index, destination) for index, destination in enumerate(destinations)]
        next_offset += len(rows)
        whole_columns = columns(rows, whole_minute)
        assert (whole_columns.sole_group is not None) == (len(set(destinations)) == 1)
        whole.put(whole_columns)
        for each_row in rows:
            single.put(columns([each_row], single_minute))
    for committed in (0, *sorted(commits)):
        whole.commit(committed)
        single.commit(committed)
        assert len(whole) == len(single) == max(0, next_offset - committed)
        assert whole.head == single.head
        assert whole.waiting() == single.waiting()
        assert whole.state(MINUTE * 60_000) == single.state(MINUTE * 60_000)
        assert whole.holding(whole_minute, STAGE) == single.holding(single_minute, STAGE)
        assert whole_minute.passed == single_minute.passed
