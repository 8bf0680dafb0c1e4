"""Dead letters of a small range, whose events are judged again."""

from typing import Any

from hifi.record.record import Record
from hifi.record.step_account import COPY, FOLDED, Tally
from hifi_state.fold.dead_letters import LATE, NO_KEY, LetterRecord
from hifi_state.fold.progress import RangeSummary
from hifi_state.fold.range_folder import FoldedRange

FETCHED_US = 1_700_000_000_000_000


def folded_range(
    letters: list[LetterRecord] | None, counts: dict[str, int], xor: int = 0, *, is_small: bool = True
) -> FoldedRange:
    """A range of partition 0; None: its events are not judged again."""
    summary = RangeSummary()
    summary.counts = dict(counts)
    summary.read[0] = {verdict: Tally(count, xor) for verdict, count in counts.items()}

    def judge_again(fetched_us: int) -> list[LetterRecord]:
        assert fetched_us == FETCHED_US
        assert letters is not None, "the events are not judged again"
        return letters

    folder: Any = None
    return FoldedRange(folder, 1, summary, [], judge_again=judge_again, is_small=is_small)


def letter(verdict: str, fingerprint: int) -> LetterRecord:
    return LetterRecord(Record(b"key", b"{}", []), 0, verdict, fingerprint)


def test_the_letters_are_those_of_the_events_that_were_refused() -> None:
    letters = [letter(LATE, 6), letter(LATE, 5)]
    folded = folded_range(letters, {FOLDED: 10, COPY: 1, LATE: 2}, xor=3)
    assert folded.has_refused
    assert folded.few_letters(FETCHED_US) == letters


def test_other_verdicts_than_before_give_no_letters() -> None:
    for letters in (
        [letter(LATE, 6)],  # one event counts now
        [letter(LATE, 6), letter(LATE, 5), letter(NO_KEY, 1)],  # one does not count any more
        [letter(LATE, 6), letter(NO_KEY, 5)],
        [letter(LATE, 6), letter(LATE, 4)],  # other events
    ):
        assert folded_range(letters, {FOLDED: 10, LATE: 2}, xor=3).few_letters(FETCHED_US) is None


def test_many_letters_are_not_held_in_memory() -> None:
    many = folded_range(None, {FOLDED: 10, LATE: 201})
    assert many.letters_need_events
    assert many.few_letters(FETCHED_US) is None


def test_a_large_range_keeps_its_events_where_it_has_letters() -> None:
    assert folded_range(None, {FOLDED: 1, LATE: 1}, is_small=False).letters_need_events, (
        "it has other records"
    )
    assert not folded_range(None, {FOLDED: 1}, is_small=False).letters_need_events
