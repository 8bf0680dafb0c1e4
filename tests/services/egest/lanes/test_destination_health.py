"""Decisions after a failed request, without I/O: who is at fault, what is sent again, what is handed over."""

from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from tests.support.egest.egest_stream import attributes, pipe

from hifi.delivery.answer import Answer, NoResponse
from hifi.delivery.attempt import Attempt
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.topics import Topics
from hifi.runtime import metrics
from hifi.runtime.clock import now_us
from hifi_egest.delivery.delivery import Delivery, EventRecord, OutboundRequest, SourcePartition
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.lanes.destination_health import DestinationHealth
from hifi_egest.policy.breaker import BreakerState, Permit
from hifi_egest.policy.outcome import DeadLettered, RetryLater
from hifi_egest.policy.refusal_streak import HOLD_S

TOPICS = Topics("s")


def request(count: int = 1, permit: Permit = Permit.NORMAL) -> OutboundRequest:
    partition = SourcePartition(
        AssignedPartition(TopicPartition(TOPICS.enriched, 0)), "enriched", InFlightBudget(100, 10**6)
    )
    deliveries = []
    for offset in range(count):
        record: Any = ConsumerRecord(
            TOPICS.enriched, 0, offset, 0, 0, b"k", b"{}", None, 0, 2, tuple(attributes(offset))
        )
        deliveries.append(Delivery(EventRecord(record, partition, b"", [], "flights", b"x:1", 0, 5), b"d"))
    lease: Any = None
    outbound_request = OutboundRequest(deliveries, [b"k"], lease)
    outbound_request.permit = permit
    outbound_request.count_attempt(0.0, now_us())
    return outbound_request


def health(**options: Any) -> DestinationHealth:
    options.setdefault("retry", {"local_attempts": 1})
    destination = pipe("http://127.0.0.1:1", **options).destinations[0]
    return DestinationHealth("flights", destination, TOPICS.tiers, 10.0)


def fails(
    destination_health: DestinationHealth, result: Answer | NoResponse, now_s: float = 1.0, **options: Any
) -> Any:
    status = result.status if isinstance(result, Answer) else 0
    return destination_health.failed(request(**options), result, Attempt(1, status, 2), now_s)


@pytest.fixture(autouse=True)
def no_breakers() -> None:
    metrics.BREAKER_OPEN.clear()


def kinds(conclusions: Any) -> list[type]:
    return [type(conclusion.outcome) for conclusion in conclusions]


def test_a_failure_within_the_local_retries_is_sent_again_and_concludes_nothing() -> None:
    outbound_request = request()
    decision = health(retry={}).failed(outbound_request, Answer(503), Attempt(1, 503, 2), 0.0)
    assert decision.resend is outbound_request
    assert decision.conclusions == []
    assert 0 <= decision.after_s <= 1


def test_the_failure_that_opens_the_breaker_hands_over_what_waits() -> None:
    destination_health = health(breaker={"failures": 2})
    assert not fails(destination_health, Answer(500)).hand_over_waiting
    decision = fails(destination_health, Answer(500))
    assert decision.hand_over_waiting
    assert destination_health.breaker.state is BreakerState.OPEN
    assert destination_health.ever_open
    assert kinds(decision.conclusions) == [RetryLater]


def test_a_refused_batch_is_sent_again_as_two_halves() -> None:
    decision = fails(health(batch={"size": 10}), Answer(422), count=5)
    assert decision.resend is not None
    assert [len(decision.resend.deliveries), len(decision.resend.followed_by.deliveries)] == [2, 3]
    assert decision.conclusions == []


def deliver(destination_health: DestinationHealth, batch: OutboundRequest, at_fault: Delivery) -> Any:
    """The conclusions after a destination that never accepts a batch with one of its deliveries."""
    conclusions: list[Any] = []
    waiting = [batch]
    while waiting:
        outbound_request = waiting.pop()
        outbound_request.count_attempt(0.0, now_us())
        if at_fault in outbound_request.deliveries:
            result = NoResponse("unavailable", "words", ambiguous=False)
            decision = destination_health.failed(outbound_request, result, Attempt(1), 1.0)
            conclusions += decision.conclusions
            if decision.resend is not None:
                waiting.append(decision.resend)
                continue
        else:
            destination_health.succeeded(Permit.NORMAL, 1.0)
        if outbound_request.followed_by is not None:
            waiting.append(outbound_request.followed_by)
    return conclusions


@pytest.mark.parametrize("at_fault", [0, 42, 99])
def test_an_event_that_always_fails_takes_no_other_with_it_after_its_first_pass(at_fault: int) -> None:
    destination_health = health(batch={"size": 100}, breaker={"failures": 2})
    batch = request(100)
    for delivery in batch.deliveries:
        delivery.passes = 1
    (conclusion,) = deliver(destination_health, batch, batch.deliveries[at_fault])
    assert conclusion.delivery is batch.deliveries[at_fault]
    assert isinstance(conclusion.outcome, RetryLater)
    assert {delivery.attempts for delivery in batch.deliveries} == {2}
    assert destination_health.breaker.state is BreakerState.CLOSED


def test_a_batch_that_fails_as_a_probe_is_handed_over_whole() -> None:
    destination_health = health(batch={"size": 10}, breaker={"failures": 1})
    fails(destination_health, Answer(500))
    assert destination_health.breaker.permit(100.0) is Permit.PROBE
    probe = request(5, Permit.PROBE)
    for delivery in probe.deliveries:
        delivery.passes = 1
    decision = destination_health.failed(probe, Answer(500), Attempt(1, 500, 2), 100.0)
    assert kinds(decision.conclusions) == [RetryLater] * 5
    assert destination_health.breaker.state is BreakerState.OPEN


def test_a_refusal_is_concluded_once_it_is_clear_who_is_at_fault() -> None:
    destination_health = health(breaker={"failures": 3})
    assert fails(destination_health, Answer(404)).conclusions == []
    assert destination_health.holding
    assert destination_health.overdue(1.0 + HOLD_S / 2) == []
    assert kinds(destination_health.succeeded(Permit.NORMAL, 1.5)) == [DeadLettered]
    for _ in range(2):
        assert fails(destination_health, Answer(401)).conclusions == []
    decision = fails(destination_health, Answer(401))
    assert kinds(decision.conclusions) == [RetryLater] * 3
    assert decision.hand_over_waiting


def test_a_long_pause_hands_over_what_waits_and_a_short_one_does_not() -> None:
    destination_health = health()
    assert not fails(destination_health, Answer(429, 5.0)).hand_over_waiting
    assert destination_health.deferral(1.0) is None
    assert fails(destination_health, Answer(429, 60.0)).hand_over_waiting
    deferral = destination_health.deferral(1.0)
    assert deferral is not None
    assert (deferral.reason, deferral.wait_s) == ("paused", 60.0)


def test_a_pause_ends_after_the_declared_time_whatever_the_destination_asked_for() -> None:
    year_s = 31_536_000.0
    for retry_options, most_s in (({}, 3600.0), ({"max_pause": "1m"}, 60.0)):
        destination_health = health(retry={"local_attempts": 1, **retry_options})
        decision = fails(destination_health, Answer(503, year_s))
        assert decision.hand_over_waiting
        assert destination_health.paused_until_s == 1.0 + most_s
        assert destination_health.is_paused(most_s)
        assert destination_health.ever_open
        assert not destination_health.is_paused(1.0 + most_s)
        assert destination_health.deferral(1.0 + most_s) is None, "the next delivery is the probe"


def test_a_delivery_does_not_wait_beyond_its_age_for_a_pause() -> None:
    destination_health = health(retry={"local_attempts": 1, "max_age": "1m"})
    (conclusion,) = fails(destination_health, Answer(503, 31_536_000.0)).conclusions
    assert isinstance(conclusion.outcome, RetryLater)
    assert max(conclusion.outcome.tier.delay_s, conclusion.outcome.wait_s or 0) <= 60
    (delivery,) = request().deliveries
    deferral = destination_health.deferral(2.0)
    assert deferral is not None
    outcome = destination_health.without_request(delivery, deferral, 2.0)
    assert isinstance(outcome, RetryLater)
    assert max(outcome.tier.delay_s, outcome.wait_s or 0) <= 60
    delivery.started_us -= 61 * 1_000_000
    assert isinstance(destination_health.without_request(delivery, deferral, 2.0), DeadLettered)


def test_a_refused_probe_blames_the_destination() -> None:
    destination_health = health(breaker={"failures": 1, "probe": "1s"})
    fails(destination_health, NoResponse("timeout", "no answer", ambiguous=True))
    assert destination_health.breaker.permit(2.5) is Permit.PROBE
    decision = fails(destination_health, Answer(403), now_s=2.5, permit=Permit.PROBE)
    assert kinds(decision.conclusions) == [RetryLater]
    assert destination_health.breaker.state is BreakerState.OPEN
