"""The clock of watermarks is never ahead of Kafka's, nor of a wall clock that is set."""

from hypothesis import given
from hypothesis import strategies as st

from hifi.runtime.trusted_clock import ClockReading, TrustedClock

START_US = 1_700_000_000_000_000
S = 1_000_000


def confirmed(clock: TrustedClock, at_us: int, wall_us: int, append_us: int) -> None:
    clock.confirm(ClockReading(at_us, wall_us), append_us // 1000, at_us + 200_000)


def test_without_a_stamp_of_kafka_there_is_no_time() -> None:
    assert TrustedClock().time_us(ClockReading(5, START_US)) is None


def test_a_right_clock_is_not_held_back() -> None:
    clock = TrustedClock()
    confirmed(clock, 0, START_US, START_US + 900)
    assert clock.time_us(ClockReading(10 * S, START_US + 10 * S)) == START_US + 10 * S
    assert not clock.set_back


def test_a_step_forward_counts_only_when_kafka_has_it_too() -> None:
    clock = TrustedClock()
    confirmed(clock, 0, START_US, START_US)
    assert clock.time_us(ClockReading(S, START_US + 3600 * S)) == START_US + S
    for second in range(2, 70):
        confirmed(clock, second * S, START_US + 3600 * S + second * S, START_US + second * S)
    assert clock.time_us(ClockReading(70 * S, START_US + 3670 * S)) == START_US + 70 * S - 200_000
    for second in range(70, 140):
        stepped_us = START_US + 3600 * S + second * S
        confirmed(clock, second * S, stepped_us, stepped_us)
    assert clock.time_us(ClockReading(140 * S, START_US + 3740 * S)) == START_US + 3740 * S


def test_a_step_back_counts_at_once_and_is_told() -> None:
    clock = TrustedClock()
    confirmed(clock, 0, START_US, START_US)
    clock.time_us(ClockReading(S, START_US + S))
    assert clock.time_us(ClockReading(2 * S, START_US - 8 * S)) == START_US - 8 * S
    assert clock.set_back == 1
    clock.time_us(ClockReading(3 * S, START_US - 7 * S))
    assert clock.set_back == 1


def test_a_small_step_back_is_told_too() -> None:
    clock = TrustedClock()
    confirmed(clock, 0, START_US, START_US)
    clock.time_us(ClockReading(S, START_US + S))
    clock.time_us(ClockReading(2 * S, START_US + 2 * S - 20_000))
    assert clock.set_back == 1


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3 * S), st.sampled_from((0, -9 * S, -5000, 700_000, 3600 * S)), st.booleans()
        ),
        max_size=80,
    )
)
def test_it_is_never_ahead_of_kafka(steps: list[tuple[int, int, bool]]) -> None:
    clock, true_us, skew_us = TrustedClock(), START_US, 0
    for passed_us, step_us, is_confirmed in steps:
        true_us += passed_us
        skew_us = step_us or skew_us
        if is_confirmed:
            reading = ClockReading(true_us - START_US, true_us + skew_us)
            append_us = true_us + passed_us // 100
            true_us = append_us + passed_us // 10
            clock.confirm(reading, append_us // 1000, true_us - START_US)
        time_us = clock.time_us(ClockReading(true_us - START_US, true_us + skew_us))
        assert time_us is None or time_us <= true_us


@given(
    st.lists(st.tuples(st.integers(0, 3 * S), st.integers(0, S), st.sampled_from((0, -9 * S))), min_size=1),
    st.sampled_from((0, 30_000, -9 * S)),
)
def test_no_other_clock_has_reached_its_latest_time(steps: list[tuple[int, int, int]], skew_us: int) -> None:
    clock, other_clock, true_us = TrustedClock(), TrustedClock(), START_US
    assert clock.latest_us(ClockReading(0, true_us)) is None
    for passed_us, delay_us, own_skew_us in steps:
        reading = ClockReading(true_us - START_US, true_us + own_skew_us)
        clock.confirm(reading, (true_us + delay_us) // 1000, true_us + delay_us - START_US)
        other_reading = ClockReading(true_us, true_us + skew_us)
        other_clock.confirm(other_reading, (true_us + delay_us) // 1000, true_us + delay_us)
        true_us += delay_us + passed_us
        latest_us = clock.latest_us(ClockReading(true_us - START_US, true_us + own_skew_us))
        other_us = other_clock.time_us(ClockReading(true_us, true_us + skew_us))
        assert latest_us is not None
        assert other_us is not None
        assert latest_us > max(other_us, true_us)
