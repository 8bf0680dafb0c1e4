"""The index has exactly the outcomes that were added."""

from hypothesis import given
from hypothesis import strategies as st

from hifi_egest.dedup.outcome_index import OutcomeIndex


@given(st.lists(st.tuples(st.integers(0, 5000), st.sampled_from([b"a", b"bb", b""])), max_size=60))
def test_the_index_has_what_was_added_and_nothing_else(added_outcomes: list[tuple[int, bytes]]) -> None:
    index = OutcomeIndex()
    for offset, name in added_outcomes:
        index.add(offset, name)
    for offset in {offset for offset, _ in added_outcomes} | {0, 1023, 1024}:
        for name in (b"a", b"bb", b""):
            assert index.has(offset, name) == ((offset, name) in added_outcomes)
