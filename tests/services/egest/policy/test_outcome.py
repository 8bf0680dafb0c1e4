"""Every answer has one consequence, and no failure is retried for ever or given up too soon."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.delivery.answer import Answer, NoResponse
from hifi.delivery.sender import SplitBatch
from hifi.kafka.topics import DEFAULT_TIERS, Tier
from hifi.pipe.model import RetryPolicy
from hifi_egest.policy import tiers
from hifi_egest.policy.outcome import (
    LOCAL_S,
    AttemptCounts,
    DeadLettered,
    Delivered,
    NextStep,
    RetryLater,
    RetryLocally,
    Unclear,
    decide,
    recoverable,
    too_old,
)

FIRST = AttemptCounts(attempts=1, local=1, age_s=0.0, pass_age_s=0.0, passes=0)
COUNTS = st.builds(
    AttemptCounts,
    attempts=st.integers(1, 30),
    local=st.integers(1, 12),
    age_s=st.floats(0, 200_000),
    pass_age_s=st.floats(0, 40),
    passes=st.integers(0, 50),
)
RESULTS = st.one_of(
    st.builds(Answer, st.integers(200, 599), st.none() | st.floats(0, 1e9)),
    st.builds(NoResponse, st.sampled_from(["dns", "timeout", "reset"]), st.just("words"), st.booleans()),
)


def after(status: int, policy: RetryPolicy | None = None, **options: Any) -> NextStep:
    return decide(Answer(status), policy or RetryPolicy(), FIRST, DEFAULT_TIERS, jitter=0.5, **options)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_a_2xx_is_the_delivery(status: int) -> None:
    assert after(status) == Delivered()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_by_itself_is_tried_again(status: int) -> None:
    assert isinstance(after(status), RetryLocally)


@pytest.mark.parametrize("status", [300, 301, 302, 307, 308, 400, 402, 405, 409, 410, 413, 415, 422, 451])
def test_every_other_answer_is_a_dead_letter_that_names_the_status(status: int) -> None:
    decision = after(status)
    assert isinstance(decision, DeadLettered)
    assert decision.reason == f"status-{status}"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_may_be_about_the_destination_is_looked_at_first(status: int) -> None:
    assert after(status) == Unclear(status)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_batch_is_halved_down_to_the_single_event(status: int) -> None:
    assert after(status, batch=2) == SplitBatch()
    assert isinstance(after(status, batch=1), DeadLettered)


@pytest.mark.parametrize(
    ("result", "is_split"),
    [
        (Answer(500), True),
        (NoResponse("timeout", "words", ambiguous=True), True),
        (NoResponse("missing table t", "words", ambiguous=False), True),
        (NoResponse("connect", "words", ambiguous=False), False),
        (Answer(503), False),
        (Answer(429), False),
    ],
)
def test_a_batch_that_fails_again_is_halved_if_one_event_may_be_at_fault(
    result: Answer | NoResponse, is_split: bool
) -> None:
    def step(attempts: int, passes: int, batch: int) -> NextStep:
        counts = AttemptCounts(attempts, 9, 0.0, 9.0, passes)
        return decide(result, RetryPolicy(), counts, DEFAULT_TIERS, jitter=0.5, batch=batch)

    assert isinstance(step(9, 0, 2), RetryLater)
    assert isinstance(step(9, 1, 1), RetryLater)
    assert isinstance(step(9, 1, 2), SplitBatch if is_split else RetryLater)
    assert isinstance(step(20, 1, 2), SplitBatch if is_split else DeadLettered)


def test_a_destination_changes_which_statuses_are_tried_again() -> None:
    policy = RetryPolicy(also=[409, 404], never=[500, 401])
    assert isinstance(after(409, policy), RetryLocally)
    assert isinstance(after(404, policy), RetryLocally)
    assert after(500, policy) == DeadLettered("status-500", "the destination answers 500")
    assert after(401, policy) == DeadLettered("status-401", "the destination answers 401")


@given(result=RESULTS, counts=COUNTS, jitter=st.floats(0, 1), batch=st.integers(1, 5), local=st.booleans())
def test_local_retries_are_few_and_within_a_second(
    result: Answer | NoResponse, counts: AttemptCounts, jitter: float, batch: int, local: bool
) -> None:
    policy = RetryPolicy()
    decision = decide(result, policy, counts, DEFAULT_TIERS, jitter=jitter, batch=batch, local=local)
    if isinstance(decision, RetryLocally):
        assert local
        assert counts.local < policy.local_attempts
        assert counts.pass_age_s + decision.after_s <= LOCAL_S
        assert decision.after_s >= 0


@given(result=RESULTS, counts=COUNTS, max_attempts=st.integers(1, 20), max_age=st.floats(1, 100_000))
def test_the_limits_end_it_and_nothing_else_does(
    result: Answer | NoResponse, counts: AttemptCounts, max_attempts: int, max_age: float
) -> None:
    policy = RetryPolicy(max_attempts=max_attempts, max_age=max_age)
    if not recoverable(result, policy):
        return
    decision = decide(result, policy, counts, DEFAULT_TIERS, jitter=1.0)
    limit_reached = counts.attempts >= max_attempts or counts.age_s >= max_age
    assert isinstance(decision, DeadLettered) == limit_reached
    if isinstance(decision, DeadLettered):
        assert decision.reason == "gave-up"


def test_a_given_up_delivery_says_why_the_last_request_failed() -> None:
    no_response = NoResponse("timeout", "the destination sent no status line in time", ambiguous=True)
    decision = decide(no_response, RetryPolicy(max_attempts=1), FIRST, DEFAULT_TIERS, jitter=0.0)
    assert isinstance(decision, DeadLettered)
    assert "no status line in time" in decision.detail


def test_a_delivery_reaches_its_age_also_when_no_request_was_ever_sent() -> None:
    policy = RetryPolicy(max_age=10)
    assert too_old(policy, 9.0, 0) is None
    outcome = too_old(policy, 10.0, 0)
    assert outcome == DeadLettered("gave-up", "the delivery began 10 s ago; no request could be sent")


TIERS = st.lists(st.integers(1, 10_000), min_size=1, max_size=6, unique=True).map(
    lambda delays: tuple(Tier(f"{delay}s", delay) for delay in sorted(delays))
)


@given(wait_s=st.floats(0, 20_000), choices=TIERS)
def test_a_wished_wait_takes_the_largest_tier_not_above_it(wait_s: float, choices: tuple[Tier, ...]) -> None:
    tier = tiers.within(wait_s, choices)
    assert tier in choices
    if tier.delay_s > wait_s:
        assert tier == choices[0]
    assert not any(tier.delay_s < candidate.delay_s <= wait_s for candidate in choices)


@given(wait_s=st.floats(1.5, 1e7), attempts=st.integers(1, 9))
def test_a_wait_beyond_the_tier_is_remembered(wait_s: float, attempts: int) -> None:
    counts = AttemptCounts(attempts=attempts, local=3, age_s=1.0, pass_age_s=0.5, passes=attempts)
    policy = RetryPolicy(max_pause=1e7, max_age=1e8)
    decision = decide(Answer(429, wait_s), policy, counts, DEFAULT_TIERS, jitter=random.random())
    assert isinstance(decision, RetryLater)
    assert decision.wait_s == (wait_s if wait_s > decision.tier.delay_s else None)


@given(
    wait_s=st.floats(0, 1e12), max_pause=st.floats(1, 1e5), max_age=st.floats(1, 1e5), age_s=st.floats(0, 1e5)
)
def test_no_wait_exceeds_the_declared_pause_and_age(
    wait_s: float, max_pause: float, max_age: float, age_s: float
) -> None:
    policy = RetryPolicy(max_pause=max_pause, max_age=max_age)
    counts = AttemptCounts(attempts=1, local=3, age_s=age_s, pass_age_s=2.0, passes=4)
    for asked_s in (wait_s, None):
        decision = decide(Answer(503, asked_s), policy, counts, DEFAULT_TIERS, jitter=0.5)
        if age_s >= max_age:
            assert isinstance(decision, DeadLettered)
            continue
        assert isinstance(decision, RetryLater)
        waits_s = max(decision.tier.delay_s, decision.wait_s or 0.0)
        assert waits_s <= max(DEFAULT_TIERS[0].delay_s, max_age - age_s)
        if asked_s is not None:
            assert waits_s <= max(DEFAULT_TIERS[0].delay_s, max_pause)


@given(passes=st.integers(0, 100))
def test_each_trip_waits_longer_until_the_last_tier(passes: int) -> None:
    assert tiers.by_pass(passes, DEFAULT_TIERS).delay_s <= tiers.by_pass(passes + 1, DEFAULT_TIERS).delay_s
    assert tiers.by_pass(len(DEFAULT_TIERS) + passes, DEFAULT_TIERS) == DEFAULT_TIERS[-1]
