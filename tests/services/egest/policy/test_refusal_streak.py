"""Refusals are attributed to the event or to the destination, each exactly once."""

from hypothesis import given
from hypothesis import strategies as st

from hifi_egest.policy.refusal_streak import HOLD_S, RefusalStreak


def test_equal_refusals_in_a_row_are_the_destinations_fault() -> None:
    streak: RefusalStreak[str] = RefusalStreak(3)
    assert streak.refused("a", 401, 0.0) == ([], [])
    assert streak.refused("b", 401, 0.1) == ([], [])
    assert streak.refused("c", 401, 0.2) == ([], ["a", "b", "c"])


def test_a_refusal_between_others_is_the_events_own_fault() -> None:
    streak: RefusalStreak[str] = RefusalStreak(3)
    streak.refused("a", 404, 0.0)
    assert streak.end() == ["a"]
    streak.refused("b", 404, 0.1)
    assert streak.refused("c", 401, 0.2) == (["b"], [])


def test_a_refusal_is_not_held_for_long_but_still_counts() -> None:
    streak: RefusalStreak[str] = RefusalStreak(3)
    streak.refused("a", 404, 0.0)
    assert streak.overdue(HOLD_S - 0.01) == []
    assert streak.overdue(HOLD_S) == ["a"]
    streak.refused("b", 404, 5.0)
    assert streak.refused("c", 404, 5.1) == ([], ["b", "c"])


@given(st.lists(st.tuples(st.sampled_from([200, 401, 403]), st.floats(0, 2)), max_size=40), st.integers(1, 5))
def test_each_refused_delivery_is_let_go_exactly_once(answers: list[tuple[int, float]], limit: int) -> None:
    streak: RefusalStreak[int] = RefusalStreak(limit)
    now_s, released, refused_numbers = 0.0, [], []
    for number, (status, pause) in enumerate(answers):
        now_s += pause
        released += streak.overdue(now_s)
        if status == 200:
            released += streak.end()
        else:
            refused_numbers.append(number)
            for group in streak.refused(number, status, now_s):
                released += group
    released += streak.release()
    assert sorted(released) == refused_numbers
