"""Times up to which `raw` was read."""

from hypothesis import given
from hypothesis import strategies as st

from hifi_observe.ledger.frontier import Frontier


def test_an_end_counts_once_raw_is_read_up_to_it() -> None:
    frontier = Frontier()
    assert frontier.note(100, 10, 0)
    assert frontier.reached_us == 0
    assert frontier.pieces(0, 9) == [(9, 0)]
    assert frontier.reached_us == 0
    assert frontier.pieces(9, 15) == [(10, 0), (15, 100)]
    assert frontier.reached_us == 100


def test_without_events_the_end_counts_at_once() -> None:
    frontier = Frontier()
    frontier.note(100, 10, 10)
    frontier.note(200, 10, 10)
    assert frontier.reached_us == 200


def test_an_end_below_what_is_known_is_of_a_replaced_leader_and_does_not_count() -> None:
    frontier = Frontier()
    frontier.note(100, 10, 10)
    assert frontier.note(200, 9, 10)
    assert frontier.reached_us == 100
    frontier.note(300, 20, 10)
    frontier.note(400, 15, 10)
    assert frontier.pieces(10, 20) == [(20, 100)]
    assert frontier.reached_us == 300


def test_after_the_clock_was_set_back_no_earlier_time_counts() -> None:
    frontier = Frontier()
    frontier.note(1000, 10, 10)
    frontier.note(1100, 20, 10)
    assert not frontier.note(500, 30, 10)
    assert frontier.pieces(10, 30) == [(30, 0)]
    assert frontier.reached_us == 500


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 7)), max_size=40),
)
def test_a_piece_has_no_record_from_before_its_time(steps: list[tuple[int, int, int]]) -> None:
    frontier, append_times, position, now = Frontier(), [], 0, 0
    for written_before, written_between, read_count in steps:
        now += 1
        append_times += [now] * written_before
        now += 1
        asked_time = now
        now += 1
        append_times += [now] * written_between
        assert frontier.note(asked_time, len(append_times), position)
        read_end = min(len(append_times), position + read_count)
        if read_end > position:
            pieces = frontier.pieces(position, read_end)
            first_offset = position
            for stop_offset, since in pieces:
                assert all(append_time >= since for append_time in append_times[first_offset:stop_offset])
                first_offset = stop_offset
            assert first_offset == read_end
            position = read_end
        assert all(append_time >= frontier.reached_us for append_time in append_times[position:])


def test_a_topic_that_is_read_from_its_beginning_again_may_end_earlier() -> None:
    frontier = Frontier()
    frontier.note(100, 100, 100)
    frontier.begin_again()
    assert frontier.reached_us == 0
    frontier.note(200, 5, 0)
    assert frontier.pieces(0, 5) == [(5, 0)]
    assert frontier.reached_us == 200
