"""Only offsets with nothing unfinished below them may be committed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.kafka.offset_tracker import OffsetTracker


@given(st.data())
def test_committable_is_the_first_unfinished_offset_whatever_the_order(data: st.DataObject) -> None:
    offsets_in_order = sorted(data.draw(st.sets(st.integers(0, 200), min_size=1, max_size=40)))
    offsets = OffsetTracker()
    unfinished_offsets: list[int] = []
    unstarted = list(offsets_in_order)
    highest_finished = None
    while unstarted or unfinished_offsets:
        if unstarted and (not unfinished_offsets or data.draw(st.booleans())):
            offsets.start(unstarted[0])
            unfinished_offsets.append(unstarted.pop(0))
        else:
            finished_offset = data.draw(st.sampled_from(unfinished_offsets))
            offsets.finish(finished_offset)
            unfinished_offsets.remove(finished_offset)
        begun_offsets = offsets_in_order[: len(offsets_in_order) - len(unstarted)]
        done_below = [
            offset for offset in begun_offsets if not unfinished_offsets or offset < min(unfinished_offsets)
        ]
        highest_finished = done_below[-1] + 1 if done_below else None
        assert offsets.committable == highest_finished
        assert offsets.pending == len([offset for offset in begun_offsets if offset not in done_below])
    assert offsets.committable == offsets_in_order[-1] + 1
    assert offsets.pending == 0


def test_finishing_twice_or_something_unknown_changes_nothing() -> None:
    offsets = OffsetTracker()
    for offset in (3, 4, 5):
        offsets.start(offset)
    offsets.finish(4)
    offsets.finish(4)
    assert (offsets.committable, offsets.pending) == (None, 3)
    offsets.finish(3)
    offsets.finish(3)
    assert (offsets.committable, offsets.pending) == (5, 1)


def test_finish_through_takes_all_up_to_there() -> None:
    offsets = OffsetTracker()
    for offset in (1, 5, 9):
        offsets.start(offset)
    offsets.finish_through(5)
    assert (offsets.committable, offsets.pending) == (6, 1)


def test_offsets_only_go_up() -> None:
    offsets = OffsetTracker()
    offsets.start(5)
    with pytest.raises(ValueError, match="offset 5 after 5"):
        offsets.start(5)


@given(st.data())
def test_offsets_without_a_record_are_committable_when_all_records_below_them_are_complete(
    data: st.DataObject,
) -> None:
    offsets, position, last_committable = OffsetTracker(), 0, None
    for _ in range(data.draw(st.integers(1, 6))):
        records = []
        for gap in data.draw(st.lists(st.integers(0, 3), max_size=4)):
            records.append(position + gap)
            position += gap + 1
        position += data.draw(st.integers(0, 3))  # markers behind them
        for offset in records:
            offsets.start(offset)
            assert offsets.committable == last_committable
        offsets.pass_to(position)
        for offset in records[:-1]:
            offsets.finish(offset)
            assert offsets.committable == offset + 1
        for offset in records[-1:]:
            offsets.finish(offset)
        last_committable = position or None
        assert offsets.committable == last_committable
