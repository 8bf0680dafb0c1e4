"""Exactly the records on which Spark fails are quarantined; all others are written, in order."""

from hypothesis import given
from hypothesis import strategies as st

from hifi_enrich.poison.search import OffsetRange, write_around_poison


class RecordedSearch:
    """What a search wrote and quarantined."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.written: list[int] = []
        self.quarantined: list[int] = []
        self.done = 0
        self.attempts = 0

    async def write(self, part: OffsetRange) -> bool:
        assert part.first == self.done
        self.attempts += 1
        for offset in range(part.first, part.end):
            if offset in self.bad:
                return False
            self.written.append(offset)
        self.done = part.end
        return True

    async def quarantine(self, part: OffsetRange) -> None:
        assert part.first == self.done
        self.quarantined.append(part.first)
        self.done = part.end


@given(st.sets(st.integers(0, 120), max_size=6), st.integers(0, 121), st.integers(0, 130))
async def test_only_the_bad_are_quarantined_and_nothing_is_skipped(
    bad: set[int], end: int, known_bad: int
) -> None:
    recorded = RecordedSearch(bad)
    inside = {offset for offset in bad if offset < end}
    hint = known_bad if any(offset < known_bad for offset in inside) else None
    assert await write_around_poison(
        OffsetRange(0, 0, end), recorded.write, recorded.quarantine, hint
    ) == len(inside)
    assert recorded.quarantined == sorted(inside)
    assert set(recorded.written) == set(range(end)) - inside
    assert recorded.done == end
    firsts = [
        offset for index, offset in enumerate(recorded.written) if offset not in recorded.written[:index]
    ]
    assert firsts == sorted(firsts)


async def test_the_search_takes_few_attempts() -> None:
    recorded = RecordedSearch({777})
    await write_around_poison(OffsetRange(0, 0, 1024), recorded.write, recorded.quarantine)
    assert recorded.attempts <= 2 * 10 + 1
