"""The breaker opens after failures in a row, permits one probe at a time, and closes after a successful one."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hifi_egest.policy.breaker import LONGEST_PROBE_S, BreakerState, CircuitBreaker, Permit

FAILURES = 3
PROBE_S = 5.0


def opened() -> CircuitBreaker:
    breaker = CircuitBreaker(FAILURES, PROBE_S)
    for _ in range(FAILURES):
        breaker.result(Permit.NORMAL, ok=False, now_s=0.0)
    return breaker


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = CircuitBreaker(FAILURES, PROBE_S)
    states = []
    for ok in [False, False, True, False, False, False]:
        breaker.result(Permit.NORMAL, ok=ok, now_s=0.0)
        states.append(breaker.state)
    assert states == [BreakerState.CLOSED] * 5 + [BreakerState.OPEN]


def test_it_refuses_until_the_probe_is_due_and_then_lets_one_through() -> None:
    breaker = opened()
    assert breaker.permit(PROBE_S - 0.1) is Permit.NO
    assert breaker.permit(PROBE_S) is Permit.PROBE
    assert breaker.permit(PROBE_S) is Permit.NO
    breaker.result(Permit.PROBE, ok=True, now_s=PROBE_S)
    assert breaker.permit(PROBE_S) is Permit.NORMAL


def test_a_probe_that_was_not_sent_is_made_up_for_by_the_next() -> None:
    breaker = opened()
    assert breaker.permit(PROBE_S) is Permit.PROBE
    breaker.forgo(Permit.PROBE)
    assert breaker.permit(PROBE_S) is Permit.PROBE


def test_what_was_sent_before_it_opened_does_not_close_it() -> None:
    breaker = opened()
    breaker.result(Permit.NORMAL, ok=True, now_s=1.0)
    assert breaker.state is BreakerState.OPEN


@given(st.integers(0, 20))
def test_failed_probes_double_the_time_up_to_a_minute(failed_probes: int) -> None:
    breaker, now_s, wait_s = opened(), 0.0, PROBE_S
    for _ in range(failed_probes):
        now_s += wait_s
        assert breaker.permit(now_s - 0.001) is Permit.NO
        assert breaker.permit(now_s) is Permit.PROBE
        breaker.result(Permit.PROBE, ok=False, now_s=now_s)
        wait_s = min(wait_s * 2, LONGEST_PROBE_S)
    assert breaker.permit(now_s + wait_s) is Permit.PROBE


class Any(RuleBasedStateMachine):
    """Permits, results and failures in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = CircuitBreaker(FAILURES, PROBE_S)
        self.now_s = 0.0
        self.permits: list[Permit] = []
        self.row = 0

    @rule(seconds=st.floats(0, 30))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def ask(self) -> None:
        permit = self.breaker.permit(self.now_s)
        if permit is not Permit.NO:
            self.permits.append(permit)

    @rule(ok=st.booleans(), index=st.integers(0, 100))
    def answered(self, ok: bool, index: int) -> None:
        if self.permits:
            permit = self.permits.pop(index % len(self.permits))
            was_closed = self.breaker.state is BreakerState.CLOSED
            self.breaker.result(permit, ok=ok, now_s=self.now_s)
            self.row = 0 if ok or not was_closed else self.row + 1
            if was_closed and self.row >= FAILURES:
                assert self.breaker.state is BreakerState.OPEN
                self.row = 0

    @rule(index=st.integers(0, 100))
    def not_sent(self, index: int) -> None:
        if self.permits:
            self.breaker.forgo(self.permits.pop(index % len(self.permits)))

    @rule()
    def trip(self) -> None:
        self.breaker.trip(self.now_s)
        self.row = 0

    @invariant()
    def one_probe_at_a_time(self) -> None:
        assert self.permits.count(Permit.PROBE) <= 1
        if self.breaker.state is BreakerState.HALF_OPEN:
            assert self.permits.count(Permit.PROBE) == 1

    @invariant()
    def never_stuck(self) -> None:
        if self.breaker.state is BreakerState.OPEN:
            assert not self.breaker.refuses(self.now_s + LONGEST_PROBE_S)


TestAny = Any.TestCase
