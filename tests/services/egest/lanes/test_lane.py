"""A lane whose destination is redeclared or deleted loses no delivery, and shows no stale breaker state."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from tests.support.egest.egest_stream import attributes, pipe, until
from tests.support.egest.fake_destination import ReceivedRequest, answer, destination

from hifi.delivery.attempt import Attempt
from hifi.delivery.destination_state import DestinationStates
from hifi.delivery.sender import SendResult, Unsendable
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.topics import Topics
from hifi.record.fields import packed
from hifi.record.headers import ACCEPTED, IN, MINUTE, PIPE, RAW, REVISION, REVISION_OFFSET, SEQ, TO
from hifi.record.identity import seq_text
from hifi.runtime import metrics
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Rejected
from hifi.runtime.health import Health
from hifi_egest.delivery.delivery import (
    Delivery,
    EarlierAttempts,
    EventRecord,
    OutboundRequest,
    SourcePartition,
)
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.lanes.lane import Lane
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.policy.breaker import BreakerState
from hifi_egest.policy.outcome import DELIVERED, FAILED, Outcome, RetryLater
from hifi_egest.settings import EgestSettings
from hifi_http.destination.credentials import Credentials

TOPICS = Topics("s")


class Beating:
    last_heartbeat_monotonic_s = float("inf")


class FakeRecorder:
    """Keeps the outcomes that the lane decided."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def record(self, deliveries: Sequence[Delivery], outcome: Outcome, _: Attempt, __: bytes) -> None:
        self.outcomes += [outcome] * len(deliveries)


@pytest.fixture
def recorder() -> FakeRecorder:
    return FakeRecorder()


def lane(url: str, recorder: FakeRecorder, **options: Any) -> Lane:
    settings = EgestSettings(kafka="127.0.0.1:1", stream="s")
    resources = LaneResources(
        settings,
        TOPICS.tiers,
        recorder,  # type: ignore[arg-type]
        PartitionLease(Beating, 10.0),
        InFlightBudget(100, 10**6),
        Health("egest", "i"),
        DestinationStates(),
        lambda *_: None,
        lambda: False,
        lambda: "",
    )
    return Lane("flights", pipe(url, **options).destinations[0], resources, 1.0)


def event_record(offset: int = 0) -> EventRecord:
    assigned = AssignedPartition(TopicPartition(TOPICS.enriched, 0))
    partition = SourcePartition(assigned, "enriched", InFlightBudget(100, 10**6))
    headers = tuple(attributes(offset))
    record: Any = ConsumerRecord(TOPICS.enriched, 0, offset, 0, 0, b"k", b"{}", None, 0, 2, headers)
    return EventRecord(record, partition, b"", [], "flights", b"x:1", 0, 5)


async def test_a_refusal_that_comes_while_the_destination_is_declared_anew_gets_its_outcome(
    recorder: FakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def refuses(_: ReceivedRequest) -> bytes:
        await gate.wait()
        return answer(404)

    async def stop(_: Credentials) -> None:
        gate.set()
        await until(lambda: http_lane._failures.health._streak.holding, 5)

    async with destination(refuses) as receiver:
        http_lane = lane(receiver.url, recorder)
        assert http_lane.offer(event_record(), b"d")
        await until(lambda: receiver.requests)
        monkeypatch.setattr(Credentials, "stop", stop)
        await http_lane.replace(pipe(receiver.url, concurrency=3).destinations[0])
        await until(lambda: recorder.outcomes, 3)
    (outcome,) = recorder.outcomes
    assert isinstance(outcome, RetryLater)
    assert outcome.reason == "status-404"


class SplittingSender:
    """Takes the first delivery of each request as unsendable, then waits before it answers."""

    ready = True
    missing = ""

    def __init__(self, gate: asyncio.Event) -> None:
        self._gate = gate
        self.sizes: list[int] = []

    async def send(self, request: OutboundRequest) -> SendResult:
        self.sizes.append(len(request.deliveries))
        await self._gate.wait()
        return Unsendable([(0, Rejected("no", "no"))])

    def sweep(self) -> None:
        pass

    async def stop(self) -> None:
        pass


async def test_what_remains_of_a_request_is_sent_as_the_destination_is_declared_by_then(
    recorder: FakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, open_gate = asyncio.Event(), asyncio.Event()
    open_gate.set()
    senders = [SplittingSender(gate), SplittingSender(open_gate)]
    made = iter(senders)
    monkeypatch.setattr("hifi_egest.lanes.lane.make_sender", lambda *_, **__: next(made))
    url, batch = "http://127.0.0.1:1", {"size": 2, "wait": "1ms"}
    batch_lane = lane(url, recorder, batch=batch)
    for offset in range(2):
        assert batch_lane.offer(event_record(offset), b"d")
    await until(lambda: senders[0].sizes, 5)
    await batch_lane.replace(pipe(url, batch=batch, concurrency=3).destinations[0])
    gate.set()
    await until(lambda: len(recorder.outcomes) == 2, 5)
    assert [sender.sizes for sender in senders] == [[2], [1]]


def breaker_metrics() -> list[float]:
    """Values of the metric of open breakers."""
    return [sample.value for family in metrics.BREAKER_OPEN.collect() for sample in family.samples]


async def test_the_breaker_of_a_deleted_destination_is_shown_no_longer(recorder: FakeRecorder) -> None:
    async def fails(_: ReceivedRequest) -> bytes:
        return answer(500)

    metrics.BREAKER_OPEN.clear()
    async with destination(fails) as receiver:
        http_lane = lane(receiver.url, recorder, breaker={"failures": 1}, retry={"local_attempts": 1})
        assert http_lane.offer(event_record(), b"d")
        await until(lambda: recorder.outcomes, 5)
        assert breaker_metrics() == [1]
        await http_lane.retire()
        assert breaker_metrics() == []


async def test_a_request_that_fails_after_its_destination_was_deleted_shows_no_breaker(
    recorder: FakeRecorder,
) -> None:
    gate = asyncio.Event()

    async def fails(_: ReceivedRequest) -> bytes:
        await gate.wait()
        return answer(500)

    metrics.BREAKER_OPEN.clear()
    async with destination(fails) as receiver:
        http_lane = lane(receiver.url, recorder, breaker={"failures": 1}, retry={"local_attempts": 1})
        assert http_lane.offer(event_record(), b"d")
        await until(lambda: receiver.requests, 5)
        await http_lane.retire()
        gate.set()
        await until(lambda: recorder.outcomes, 5)
        assert breaker_metrics() == []


async def test_what_was_queued_is_sent_once_though_the_lane_failed_when_it_was_offered(
    recorder: FakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def accept(_: ReceivedRequest) -> bytes:
        return answer(204)

    def fails(_: Lane) -> None:
        raise AttributeError

    async with destination(accept) as receiver:
        http_lane = lane(receiver.url, recorder)
        await until(lambda: http_lane.sender.ready, 5)
        with monkeypatch.context() as patch:
            patch.setattr(Lane, "_next_request", fails)
            assert http_lane.offer(event_record(), b"d")
            await asyncio.sleep(0.01)
        http_lane.sweep()
        await until(lambda: recorder.outcomes, 5)
    assert recorder.outcomes == [DELIVERED]
    assert len(receiver.requests) == 1


def of_revision(offset: int, revision: int) -> EventRecord:
    """An event of a revision; its id is its offset."""
    event = event_record(offset)
    numbers = dict.fromkeys((REVISION, REVISION_OFFSET), b"%d" % revision)
    header_values = {PIPE: b"flights", SEQ: seq_text(1, offset), TO: b"d"} | numbers
    identity_fields = header_values | dict.fromkeys((ACCEPTED, MINUTE, IN, RAW), b"1")
    event.record.headers = tuple(packed(dict(attributes(offset)) | identity_fields))
    return event


async def test_each_delivery_is_sent_as_its_revision_declares_it(recorder: FakeRecorder) -> None:
    async with destination() as current, destination() as canary:
        http_lane = lane(current.url, recorder, batch={"size": 10})
        next_destination = pipe(canary.url, batch={"size": 10}).destinations[0]
        assert not http_lane.replace_revisions({1: http_lane.destination, 2: next_destination})
        for offset, revision in enumerate((1, 2, 2, 1)):
            assert http_lane.offer(of_revision(offset, revision), b"d")
        await until(lambda: len(recorder.outcomes) == 4, 5)
        assert [request.ids for request in current.requests] == [["0"], ["3"]]
        assert [request.ids for request in canary.requests] == [["1", "2"]]
        (obsolete_sender,) = http_lane.replace_revisions({1: http_lane.destination})
        await obsolete_sender.stop()
        assert http_lane.offer(of_revision(4, 2), b"d")
        await until(lambda: len(recorder.outcomes) == 5, 5)
        assert current.requests[-1].ids == ["4"]
    assert set(recorder.outcomes) == {DELIVERED}


class BreakerRecorder(FakeRecorder):
    """Keeps the state of the breaker in each receipt."""

    def __init__(self) -> None:
        super().__init__()
        self.breakers: list[bytes] = []

    def record(
        self, deliveries: Sequence[Delivery], outcome: Outcome, attempt: Attempt, breaker: bytes
    ) -> None:
        self.breakers += [breaker] * len(deliveries)
        super().record(deliveries, outcome, attempt, breaker)


@pytest.mark.slow
@pytest.mark.parametrize("status", [500, 401])
async def test_receipts_say_how_the_breaker_is_from_its_first_opening_on(status: int) -> None:
    statuses = [200, status, status, status, 200, 200]

    async def answers(_: ReceivedRequest) -> bytes:
        return answer(statuses.pop(0))

    recorder = BreakerRecorder()
    breaker = {"failures": 2, "probe": "100ms"}
    async with destination(answers) as receiver:
        http_lane = lane(receiver.url, recorder, breaker=breaker, retry={"local_attempts": 1})
        breaker_text = lambda state: f"{state}:{http_lane._resources.settings.instance}".encode()  # noqa: E731

        async def offer(outcomes: int, wait_s: float = 0) -> bytes:
            """Breaker state in the last receipt, once there are `outcomes` outcomes."""
            await asyncio.sleep(wait_s)
            assert http_lane.offer(event_record(len(recorder.outcomes)), b"d")
            await until(lambda: len(recorder.outcomes) >= outcomes, 5)
            return recorder.breakers[-1]

        assert await offer(1) == b""
        if status == 500:
            assert await offer(2) == b""
        else:  # held until the next answer says whose fault it is
            assert http_lane.offer(event_record(7), b"d")
        assert await offer(3) == breaker_text("open")
        assert await offer(4) == breaker_text("open"), "refused without a request"
        assert await offer(5, 0.15) == breaker_text("open"), "its probe failed"
        assert await offer(6, 0.25) == breaker_text("closed"), "its probe was answered"
        assert await offer(7) == breaker_text("closed")
        # Mended by a new declaration: a receipt still has to say that it is closed.
        await http_lane.replace(pipe(receiver.url, breaker=breaker, concurrency=3).destinations[0])
        assert http_lane._failures.health.ever_open
        statuses.append(200)
        assert await offer(8) == breaker_text("closed")


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 403, 500])
async def test_what_comes_while_a_probe_is_under_way_waits_for_its_result(
    recorder: FakeRecorder, status: int
) -> None:
    gate = asyncio.Event()

    async def answers(request: ReceivedRequest) -> bytes:
        if request.ids == ["0"]:
            return answer(500)
        if request.ids == ["1"]:
            await gate.wait()
            return answer(status)
        return answer(200)

    breaker = {"failures": 1, "probe": "100ms"}
    async with destination(answers) as receiver:
        http_lane = lane(receiver.url, recorder, breaker=breaker, retry={"local_attempts": 1})
        health = http_lane._failures.health
        assert http_lane.offer(event_record(0), b"d")
        await until(lambda: recorder.outcomes, 5)
        await until(lambda: health.deferral(monotonic_s()) is None, 5)
        for offset in range(1, 7):
            assert http_lane.offer(event_record(offset), b"d")
        assert not http_lane.may_wait(delays_others=False, saturated=False)
        await until(lambda: len(receiver.requests) == 2, 5)
        assert health.breaker.state is BreakerState.HALF_OPEN
        assert len(recorder.outcomes) == 1
        gate.set()
        await until(lambda: len(recorder.outcomes) == 7, 5)
        assert len(receiver.requests) == (7 if status == 200 else 2)
    reasons = [outcome.reason for outcome in recorder.outcomes if isinstance(outcome, RetryLater)]
    waited = [] if status == 200 else [f"status-{status}", *5 * ["breaker-open"]]
    assert reasons == ["status-500", *waited]


async def test_a_delivery_without_an_outcome_keeps_those_behind_it_from_none(
    recorder: FakeRecorder,
) -> None:
    http_lane = lane("http://127.0.0.1:1", recorder)
    unlike = event_record(0)
    unlike.earlier = EarlierAttempts(started_us=10**400)
    for event in (unlike, event_record(1), event_record(2)):
        assert http_lane.offer(event, b"d")
    http_lane.hold(pipe_held=True)
    assert recorder.outcomes[0] == FAILED
    assert [type(outcome) for outcome in recorder.outcomes[1:]] == [RetryLater] * 2


async def test_an_outcome_that_cannot_be_recorded_keeps_those_behind_it_from_none(
    recorder: FakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    http_lane = lane("http://127.0.0.1:1", recorder)
    for offset in range(3):
        assert http_lane.offer(event_record(offset), b"d")
    record = recorder.record

    def fails_first(deliveries: Sequence[Delivery], *arguments: Any) -> None:
        if not deliveries[0].event.record.offset:
            raise ValueError("no record")
        record(deliveries, *arguments)

    monkeypatch.setattr(recorder, "record", fails_first)
    with pytest.raises(ValueError, match="no record"):
        http_lane.hold(pipe_held=True)
    assert len(recorder.outcomes) == 2
