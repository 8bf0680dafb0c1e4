"""An event that names a revision beyond the end of the topic `pipes` is not waited for, once it is old enough."""

import pytest

from hifi.pipe.pipes_end import NOTHING_KNOWN, PipesEnd, never_published


@pytest.mark.parametrize(
    ("revision_offset", "existed_ms", "excluded"),
    [(7, 999, True), (10**18 - 1, 999, True), (6, 999, False), (7, 1000, False), (0, 0, False)],
)
def test_only_an_old_event_beyond_the_end_is_excluded(
    revision_offset: int, existed_ms: int, *, excluded: bool
) -> None:
    end = PipesEnd(offset=7, before_ms=1000)
    assert end.excludes(revision_offset, existed_ms) == excluded
    assert not NOTHING_KNOWN.excludes(revision_offset, existed_ms)


def test_the_dead_letter_says_where_the_topic_ends() -> None:
    assert "offset 9 of the topic pipes, which ends at 7" in never_published(9, PipesEnd(7, 0))
