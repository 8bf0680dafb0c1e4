"""The start offset of a run of the query."""

from hypothesis import given
from hypothesis import strategies as st

from hifi.kafka.group_offsets import starting_offsets


@given(st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 120))
def test_a_run_starts_at_the_committed_offset_or_else_at_the_first(
    first: int, count: int, committed_offset: int | None
) -> None:
    start = starting_offsets({0: committed_offset}, {0: first}, {0: first + count})[0]
    is_inside = committed_offset is not None and first <= committed_offset <= first + count
    assert start == (committed_offset if is_inside else first)
