"""A lane that is declared anew or is no more loses nothing it had in hand, and shows nothing that is over."""

import asyncio
import ssl
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from egest_stream import attributes, pipe, until
from fake_destination import Request, answer, destination

from hifi import metrics
from hifi.health import Health
from hifi.kafka.consumer import AssignedPartition
from hifi.topics import Topics
from hifi_egest.dedup.deduplicator import Done, Memory, Once
from hifi_egest.dedup.takeover import Finished
from hifi_egest.delivery.delivery import Delivery, Event
from hifi_egest.delivery.lease import Lease
from hifi_egest.delivery.partition import Held, Partition
from hifi_egest.http.credentials import Equipment
from hifi_egest.lanes.lane import Lane, Tools
from hifi_egest.policy.outcome import Dead, HandOver
from hifi_egest.receipts.outcome_recorder import Exchange
from hifi_egest.settings import EgestSettings

TOPICS = Topics("s")


class Beating:
    last_heartbeat_monotonic_s = float("inf")


class Settler:
    """Keeps what the lane decided."""

    def __init__(self) -> None:
        self.outcomes: list[HandOver | Dead | None] = []

    def delivered(self, _: Delivery, __: Exchange) -> None:
        self.outcomes.append(None)

    def hand_over(self, _: Delivery, what: HandOver, __: Exchange) -> None:
        self.outcomes.append(what)

    def dead(self, _: Delivery, what: Dead, __: Exchange) -> None:
        self.outcomes.append(what)


@pytest.fixture
def settler() -> Settler:
    return Settler()


def lane(url: str, settler: Settler, **declared: Any) -> Lane:
    settings = EgestSettings(kafka="127.0.0.1:1", stream="s")
    tools = Tools(
        settings,
        TOPICS.tiers,
        settler,  # type: ignore[arg-type]
        Lease(Beating, 10.0),  # type: ignore[arg-type]
        Held(100, 10**6),
        Health("egest", "i"),
        ssl.create_default_context(),
    )
    return Lane("flights", pipe(url, **declared).destinations[0], tools, 1.0)


def delivery(offset: int = 0) -> Delivery:
    work = AssignedPartition(TopicPartition(TOPICS.enriched, 0))
    partition = Partition(work, "enriched", Once(Memory(), Done()), Finished(), Held(100, 10**6))
    headers = tuple(attributes(offset))
    record: Any = ConsumerRecord(TOPICS.enriched, 0, offset, 0, 0, b"k", b"{}", None, 0, 2, headers)
    return Delivery(Event(record, partition, [], "flights", b"x:1", 0, 5), b"d")


async def test_a_refusal_that_comes_while_the_destination_is_declared_anew_gets_its_outcome(
    settler: Settler, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def refuses(_: Request) -> bytes:
        await gate.wait()
        return answer(404)

    async def stop(_: Equipment) -> None:
        gate.set()
        await until(lambda: one._judge._streak.holding, 5)

    async with destination(refuses) as there:
        one = lane(there.url, settler)
        one.offer(delivery())
        await until(lambda: there.requests)
        monkeypatch.setattr(Equipment, "stop", stop)
        await one.replace(pipe(there.url, concurrency=3).destinations[0])
        await until(lambda: settler.outcomes, 3)
    (what,) = settler.outcomes
    assert isinstance(what, HandOver)
    assert what.reason == "status-404"


def shown() -> list[float]:
    """What the metrics say of the breaker."""
    return [sample.value for family in metrics.BREAKER_OPEN.collect() for sample in family.samples]


async def test_the_breaker_of_a_deleted_destination_is_shown_no_longer(settler: Settler) -> None:
    async def fails(_: Request) -> bytes:
        return answer(500)

    metrics.BREAKER_OPEN.clear()
    async with destination(fails) as there:
        one = lane(there.url, settler, breaker={"failures": 1}, retry={"local_attempts": 1})
        one.offer(delivery())
        await until(lambda: settler.outcomes, 5)
        assert shown() == [1]
        await one.retire()
        assert shown() == []


async def test_a_request_that_fails_after_its_destination_was_deleted_shows_no_breaker(
    settler: Settler,
) -> None:
    gate = asyncio.Event()

    async def fails(_: Request) -> bytes:
        await gate.wait()
        return answer(500)

    metrics.BREAKER_OPEN.clear()
    async with destination(fails) as there:
        one = lane(there.url, settler, breaker={"failures": 1}, retry={"local_attempts": 1})
        one.offer(delivery())
        await until(lambda: there.requests, 5)
        await one.retire()
        gate.set()
        await until(lambda: settler.outcomes, 5)
        assert shown() == []


async def test_what_was_queued_is_sent_once_though_the_lane_failed_when_it_was_offered(
    settler: Settler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def takes(_: Request) -> bytes:
        return answer(204)

    def fails(_: Lane) -> None:
        raise AttributeError

    async with destination(takes) as there:
        one = lane(there.url, settler)
        await until(lambda: one._equipment.binding is not None, 5)
        with monkeypatch.context() as broken:
            broken.setattr(Lane, "pump", fails)
            one.offer(delivery())
        one.sweep()
        await until(lambda: settler.outcomes, 5)
    assert settler.outcomes == [None]
    assert len(there.requests) == 1


async def test_a_lane_that_is_to_look_again_at_once_keeps_no_handle_that_tells_no_time(
    settler: Settler, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = lane("http://127.0.0.1:1", settler)
    looked = 0

    def pump() -> None:
        nonlocal looked
        looked += 1

    monkeypatch.setattr(one, "pump", pump)
    loop = asyncio.get_running_loop()
    past = SimpleNamespace(time=lambda: loop.time() - 1, call_at=loop.call_at)
    monkeypatch.setattr(one, "_loop", past)
    for _ in range(3):
        one._wake_in(0.5)  # uvloop takes it for now, and gives a handle that knows no time
    await until(lambda: looked, 5)
    assert one._wake is None


class Telling(Settler):
    """Keeps what the receipts would say of the breaker."""

    def __init__(self) -> None:
        super().__init__()
        self.breakers: list[bytes] = []

    def delivered(self, delivery: Delivery, exchange: Exchange) -> None:
        self.breakers.append(delivery.breaker)
        super().delivered(delivery, exchange)

    def hand_over(self, delivery: Delivery, what: HandOver, exchange: Exchange) -> None:
        self.breakers.append(delivery.breaker)
        super().hand_over(delivery, what, exchange)


@pytest.mark.parametrize("status", [500, 401])
async def test_receipts_say_how_the_breaker_is_from_its_first_opening_on(status: int) -> None:
    statuses = [200, status, status, status, 200, 200]

    async def answers(_: Request) -> bytes:
        return answer(statuses.pop(0))

    settler = Telling()
    breaker = {"failures": 2, "probe": "100ms"}
    async with destination(answers) as there:
        one = lane(there.url, settler, breaker=breaker, retry={"local_attempts": 1})
        said = lambda state: f"{state}:{one._tools.settings.instance}".encode()  # noqa: E731

        async def offer(outcomes: int, wait_s: float = 0) -> bytes:
            """The last receipt's word, once there are so many outcomes."""
            await asyncio.sleep(wait_s)
            one.offer(delivery(len(settler.outcomes)))
            await until(lambda: len(settler.outcomes) >= outcomes, 5)
            return settler.breakers[-1]

        assert await offer(1) == b""
        if status == 500:
            assert await offer(2) == b""
        else:  # held until the next answer says whose fault it is
            one.offer(delivery(7))
        assert await offer(3) == said("open")
        assert await offer(4) == said("open"), "refused without a request"
        assert await offer(5, 0.15) == said("open"), "its probe failed"
        assert await offer(6, 0.25) == said("closed"), "its probe was answered"
        assert await offer(7) == said("closed")
        # Mended by a new declaration: the word that it is closed is still owed.
        await one.replace(pipe(there.url, breaker=breaker, concurrency=3).destinations[0])
        assert one._judge.ever_open
        statuses.append(200)
        assert await offer(8) == said("closed")
