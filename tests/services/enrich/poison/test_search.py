"""Exactly the records on which Spark fails are quarantined; all others are written, in order."""

from hypothesis import given
from hypothesis import strategies as st

from hifi_enrich.poison.search import OffsetRange, write_around_poison


class RecordedSearch:
    """The records that a search wrote and quarantined."""

    def __init__(self, bad_offsets: set[int]) -> None:
        self.bad_offsets = bad_offsets
        self.written_offsets: list[int] = []
        self.quarantined_offsets: list[int] = []
        self.next_offset = 0
        self.attempts = 0

    async def write(self, offset_range: OffsetRange) -> bool:
        assert offset_range.first == self.next_offset
        self.attempts += 1
        for offset in range(offset_range.first, offset_range.end):
            if offset in self.bad_offsets:
                return False
            self.written_offsets.append(offset)
        self.next_offset = offset_range.end
        return True

    async def quarantine(self, offset_range: OffsetRange) -> None:
        assert offset_range.first == self.next_offset
        self.quarantined_offsets.append(offset_range.first)
        self.next_offset = offset_range.end


@given(st.sets(st.integers(0, 120), max_size=6), st.integers(0, 121), st.integers(0, 130))
async def test_only_the_bad_are_quarantined_and_nothing_is_skipped(
    bad_offsets: set[int], end: int, hint_offset: int
) -> None:
    search = RecordedSearch(bad_offsets)
    bad_in_range = {offset for offset in bad_offsets if offset < end}
    hint = hint_offset if any(offset < hint_offset for offset in bad_in_range) else None
    await write_around_poison(OffsetRange(0, 0, end), search.write, search.quarantine, hint)
    assert search.quarantined_offsets == sorted(bad_in_range)
    assert set(search.written_offsets) == set(range(end)) - bad_in_range
    assert search.next_offset == end
    first_writes = [
        offset
        for index, offset in enumerate(search.written_offsets)
        if offset not in search.written_offsets[:index]
    ]
    assert first_writes == sorted(first_writes)


async def test_the_search_takes_few_attempts() -> None:
    search = RecordedSearch({777})
    await write_around_poison(OffsetRange(0, 0, 1024), search.write, search.quarantine)
    assert search.attempts <= 2 * 10 + 1
