"""A slow, dead or hanging destination delays no other destination and no commit."""

import asyncio
import statistics
import time
from typing import Any

import pytest
from tests.support.egest.egest_stream import EgestStream, outcomes, pipe_to, running_egest, until
from tests.support.egest.fake_destination import OK, ReceivedRequest, Reply, answer, destination

from hifi.record.headers import ACCEPTED, ANSWERED, DESTINATION, OUTCOME, REASON


async def hangs(_: ReceivedRequest) -> bytes | None:
    return None


async def fails(_: ReceivedRequest) -> bytes:
    return answer(500)


async def crawls(_: ReceivedRequest) -> bytes:
    await asyncio.sleep(0.2)
    return OK


def p95(receipts: list[dict[str, str]], name: str) -> float:
    """Of accepted to answered, seconds."""
    lags = [
        (int(receipt[ANSWERED]) - int(receipt[ACCEPTED])) / 1e6
        for receipt in receipts
        if receipt[OUTCOME] == "delivered" and receipt[DESTINATION] == name
    ]
    return statistics.quantiles(lags, n=20)[-1]


async def paced(stream: EgestStream, to: str, per_second: int, seconds: float) -> int:
    """Send at a rate, on schedule."""
    began_s, count = time.monotonic(), 0
    while count < per_second * seconds:
        await asyncio.sleep(max(0.0, began_s + count / per_second - time.monotonic()))
        await stream.send(1, to=to)
        count += 1
    return count


# A destination that hangs holds most up.
@pytest.mark.parametrize(
    "sick",
    [hangs, pytest.param(crawls, marks=pytest.mark.more), pytest.param(fails, marks=pytest.mark.more)],
)
async def test_a_sick_destination_is_not_noticed_by_the_others(stream: EgestStream, sick: Reply) -> None:
    """More comes for it than it takes; what does not fit in its lane goes to the retrier at once."""
    async with destination() as well, destination(sick) as other:
        declared = pipe_to(
            "flights",
            {"name": "well", "url": well.url},
            {"name": "sick", "url": other.url, "timeout": "500ms", "concurrency": 2},
        )
        async with running_egest(stream, declared, egest_lane_events=80, egest_send_within_s=3):
            alone = await paced(stream, "well", 100, 2)
            before = await stream.receipts(alone)
            both = await paced(stream, "well,sick", 100, 2)
            began_s = time.monotonic()
            after = (await stream.receipts(alone + 2 * both))[alone:]
            assert time.monotonic() - began_s < 20, "the commit is not held back either"
            again = await paced(stream, "well", 100, 2)
            later = (await stream.receipts(alone + 2 * both + again))[alone + 2 * both :]
    of_well = [receipt for receipt in after if receipt[DESTINATION] == "well"]
    of_sick = [receipt for receipt in after if receipt[DESTINATION] == "sick"]
    assert outcomes(of_well) == ["delivered"] * both
    assert set(outcomes(of_sick)) <= ({"delivered", "retry"} if sick is crawls else {"retry"})
    reasons = {receipt.get(REASON) for receipt in of_sick if receipt[OUTCOME] == "retry"}
    # While cores are scarce, what a destination would take waits in egest, so a slow one may get all of it.
    assert {"lane-full", "not-in-time", "breaker-open"} & reasons or sick is crawls
    # All on one noisy machine, which can be busier at one time: a factor, and what some turns of the loop may take.
    assert p95(of_well, "well") < 2 * max(p95(before, "well"), p95(later, "well")) + 0.3


async def test_a_burst_for_fast_destinations_keeps_its_order_and_needs_no_retrier(
    stream: EgestStream,
) -> None:
    """After a restart say: far more at once than the lanes hold."""
    async with destination() as first, destination() as two:
        declared = pipe_to("flights", {"name": "one", "url": first.url}, {"name": "two", "url": two.url})
        await stream.publish(declared)
        records = [stream.record("one,two", key=f"k{n % 50}") for n in range(3000)]
        await stream.enriched(*records)
        async with running_egest(stream, egest_lane_events=100):
            receipts = await stream.receipts(6000)
    assert outcomes(receipts) == ["delivered"] * 6000
    for receiver in (first, two):
        for key in range(50):
            of_key = [int(event_id) for event_id in receiver.ids if int(event_id) % 50 == key]
            assert of_key == sorted(of_key)


async def test_the_commit_goes_on_while_one_request_hangs(stream: EgestStream) -> None:
    """It is held back for the destination's time-out, and no longer."""
    async with destination(hangs) as sick, destination() as well:
        declared = pipe_to(
            "flights",
            {"name": "sick", "url": sick.url, "timeout": "1s", "retry": {"local_attempts": 1}},
            {"name": "well", "url": well.url},
        )
        async with running_egest(stream, declared):
            await stream.send(1, to="sick")
            await stream.send(500, to="well")
            await until(lambda: len(well.requests) == 500)

            async def all_committed() -> bool:
                return any(at.offset == 501 for at in (await stream.committed()).values())

            async with asyncio.timeout(30):
                while not await all_committed():
                    await asyncio.sleep(0.05)


async def test_memory_does_not_grow_with_what_a_dead_destination_is_owed(stream: EgestStream) -> None:
    async with destination(fails) as sick:
        declared: dict[str, Any] = {
            "breaker": {"failures": 2, "probe": "60s"},
            "retry": {"local_attempts": 1},
        }
        async with running_egest(
            stream, pipe_to("flights", {"name": "d", "url": sick.url, **declared}), egest_in_flight_events=50
        ):
            await stream.send(2000)
            receipts = await stream.receipts(2000)
    assert outcomes(receipts) == ["retry"] * 2000
    assert len(sick.requests) < 20
