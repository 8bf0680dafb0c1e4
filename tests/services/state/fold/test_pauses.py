"""When the next round of a step begins."""

from itertools import pairwise

from hifi_state.fold.pauses import Pauses
from hifi_state.fold.progress import Progress

INTERVAL_S, EVERY_MS, LATENESS_MS = 5.0, 10_000, 2_000


def test_a_round_begins_when_a_window_is_expected_to_close_but_within_the_interval() -> None:
    pauses = Pauses(INTERVAL_S, EVERY_MS)
    assert pauses.next_s(None, 0, 0.5) == INTERVAL_S
    assert pauses.next_s(9_000, 0, 0.5) == INTERVAL_S
    assert 0.5 < pauses.next_s(1_000, 0, 0.5) < 1.0


def test_pauses_grow_up_to_the_interval_while_a_watermark_stands_still() -> None:
    pauses = Pauses(INTERVAL_S, EVERY_MS)
    assert 2.0 < pauses.next_s(3_000, 0, 0.5) < 3.0
    overdue_s = [pauses.next_s(3_000, now_s - 0.5, now_s) for now_s in range(4, 14)]
    assert overdue_s[0] < 0.5
    assert all(earlier <= later for earlier, later in pairwise(overdue_s))
    assert overdue_s[-1] == INTERVAL_S


def test_a_watermark_that_rises_less_than_expected_ends_in_the_interval_too() -> None:
    pauses = Pauses(INTERVAL_S, EVERY_MS)
    pauses_s = [pauses.next_s(500 - number, number, number + 0.7) for number in range(10)]
    assert pauses_s[-1] == INTERVAL_S
    assert pauses.next_s(4_000, 20, 20.5) < INTERVAL_S
    assert pauses.next_s(50, 24.2, 24.9) < 0.5, "a round that was a little early"


def test_windows_that_end_more_often_than_rounds_begin_bring_no_round_forward() -> None:
    assert Pauses(INTERVAL_S, EVERY_MS).every_ms == EVERY_MS
    assert Pauses(INTERVAL_S, 1000).every_ms is None
    assert Pauses(INTERVAL_S, None).every_ms is None


def test_the_next_window_closes_when_the_lowest_watermark_has_passed_its_end_by_the_lateness() -> None:
    progress = Progress("d", "flights", 0, {0: 0, 1: 0}, highest_stamps={0: 31_500, 1: 30_100})
    assert progress.next_end_in_ms(EVERY_MS, LATENESS_MS) == 1_900
    at_end = Progress("d", "flights", 0, {0: 0}, highest_stamps={0: 32_000})
    assert at_end.next_end_in_ms(EVERY_MS, LATENESS_MS) == EVERY_MS
    assert (
        Progress("d", "flights", 0, {0: 0, 1: 0}, highest_stamps={0: 1}).next_end_in_ms(EVERY_MS, LATENESS_MS)
        is None
    )
