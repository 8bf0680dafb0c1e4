"""The search buries exactly the records that Spark dies of, in order, and passes every other one on."""

from hypothesis import given
from hypothesis import strategies as st

from hifi_enrich.burial import is_infrastructure
from hifi_enrich.offsets import resume
from hifi_enrich.poison import Range, deaths, died_note, search, trial_note, unfinished_trial


class Ledger:
    """What came out of a search, and what the process remembers of it."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.written: list[int] = []
        self.buried: list[int] = []
        self.done = 0
        self.attempts = 0

    async def attempt(self, part: Range) -> bool:
        assert part.first == self.done
        self.attempts += 1
        for offset in range(part.first, part.end):
            if offset in self.bad:
                return False
            self.written.append(offset)
        self.done = part.end
        return True

    async def bury(self, part: Range) -> None:
        assert part.first == self.done
        self.buried.append(part.first)
        self.done = part.end


@given(st.sets(st.integers(0, 120), max_size=6), st.integers(0, 121), st.integers(0, 130))
async def test_only_the_bad_are_buried_and_nothing_is_skipped(
    bad: set[int], end: int, known_bad: int
) -> None:
    ledger = Ledger(bad)
    inside = {offset for offset in bad if offset < end}
    hint = known_bad if any(offset < known_bad for offset in inside) else None
    assert await search(Range(0, 0, end), ledger.attempt, ledger.bury, hint) == len(inside)
    assert ledger.buried == sorted(inside)
    assert set(ledger.written) == set(range(end)) - inside
    assert ledger.done == end
    firsts = [offset for index, offset in enumerate(ledger.written) if offset not in ledger.written[:index]]
    assert firsts == sorted(firsts)


async def test_the_search_takes_few_attempts() -> None:
    ledger = Ledger({777})
    await search(Range(0, 0, 1024), ledger.attempt, ledger.bury)
    assert ledger.attempts <= 2 * 10 + 1


def test_notes_are_read_as_they_were_written() -> None:
    assert (deaths(died_note(3)), unfinished_trial(trial_note(9))) == (3, 9)
    for note in ("", "else", "died:x", "trial:"):
        assert (deaths(note), unfinished_trial(note)) == (0, None)


def test_kafka_is_not_taken_for_a_poisoned_record() -> None:
    assert is_infrastructure("Caused by: org.apache.kafka.common.errors.TimeoutException: Expiring 3 records")
    assert not is_infrastructure("org.apache.kafka.common.errors.RecordTooLargeException: 9 bytes")
    assert not is_infrastructure(
        "java.lang.StackOverflowError at org.apache.kafka.clients.producer.KafkaProducer.send"
    )


@given(st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 120))
def test_it_goes_on_at_the_committed_offset_or_at_the_first_there_is(
    first: int, count: int, committed: int | None
) -> None:
    start = resume({0: committed}, {0: first}, {0: first + count})[0]
    inside = committed is not None and first <= committed <= first + count
    assert start == (committed if inside else first)
