"""Requests are split during a burst and joined after it, as actions in a real Kafka; the rate is given."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.support.colours.coloured_kafka import ColoursUnderTest

from hifi.control.action import ActionKind
from hifi.control.verdict import Condition
from hifi.delivery.colours import Colour, Colours, ColourState
from hifi.runtime.errors import Retryable
from hifi_infra.colours.burst import BurstAction, BurstPolicy, RateSample, decide
from hifi_infra.colours.burst_splitter import MEASURE_S, BurstSplitter, accepted_events, ingests_of
from hifi_infra.colours.operations import ColourOperations

POLICY = BurstPolicy(above_per_s=100)
BY = "burst"
HALF = {"blue": 5000, "green": 5000}
BLUE = {"blue": 10_000, "green": 0}


def samples(*rates: float | None) -> list[RateSample]:
    return [RateSample(number * MEASURE_S, rate) for number, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("rates", "action"),
    [
        ((101, 101, 101), BurstAction.SPLIT),
        ((101, 101), BurstAction.NOTHING),
        ((101, 100, 101), BurstAction.NOTHING),
        ((101, None, 101), BurstAction.NOTHING),
        ((), BurstAction.NOTHING),
    ],
)
def test_requests_are_split_when_the_rate_was_too_high_for_a_while(
    rates: tuple[float | None, ...], action: BurstAction
) -> None:
    assert decide(POLICY, samples(*rates), split=False) is action


@pytest.mark.parametrize(
    ("rates", "action"),
    [
        ([70] * 25, BurstAction.JOIN),
        ([70] * 24, BurstAction.NOTHING),
        ([70] * 24 + [71], BurstAction.NOTHING),
        ([70] * 12 + [None] + [70] * 12, BurstAction.NOTHING),
    ],
)
def test_requests_are_joined_when_the_rate_was_low_for_longer(
    rates: list[float | None], action: BurstAction
) -> None:
    assert decide(POLICY, samples(*rates), split=True) is action


def splitter_of(colours: ColoursUnderTest, rates: list[float]) -> BurstSplitter:
    """A splitter that sees these rates, one at each round."""
    counts = iter([0.0, *itertools.accumulate(rate * MEASURE_S for rate in rates)])
    times = itertools.count(0.0, MEASURE_S)

    async def count() -> float:
        return next(counts)

    clock: Callable[[], float] = lambda: next(times)  # noqa: E731
    return BurstSplitter(POLICY, BY, lambda actor: colours.operations(actor=actor), count, clock=clock)


async def rounds(splitter: BurstSplitter, colours: ColoursUnderTest, count: int) -> None:
    for _ in range(count):
        await splitter.adjust(await colours.operations().colours())


async def test_a_burst_is_split_although_a_colour_is_unstable_and_joined_once_both_are_stable(
    colours: ColoursUnderTest,
) -> None:
    await colours.judge(blue=Condition.UNSTABLE, green=Condition.STABLE)
    splitter = splitter_of(colours, [150.0] * 3 + [60.0] * 60)
    await rounds(splitter, colours, 4)
    assert (await colours.operations().colours()).shares == HALF
    (split,) = await colours.actions()
    assert (split.kind, split.reason) == (ActionKind.SCALE_OUT, "150 events/s are above 100")
    await rounds(splitter, colours, 26)
    assert (await colours.operations().colours()).shares == HALF
    await colours.judge(blue=Condition.STABLE, green=Condition.STABLE)
    await rounds(splitter, colours, 1)
    assert (await colours.operations().colours()).shares == BLUE
    assert (await colours.actions())[0].kind is ActionKind.SCALE_IN


async def test_a_split_that_counts_although_its_end_was_not_recorded_is_joined() -> None:
    shifts: list[tuple[Mapping[str, int], ActionKind]] = []

    async def shift(shares: Mapping[str, int], _: str, *, kind: ActionKind) -> None:
        shifts.append((shares, kind))
        raise Retryable("the end of the action could not be recorded")

    counts = itertools.accumulate([0.0, *[150.0 * MEASURE_S] * 3, *[60.0 * MEASURE_S] * 26])
    times = itertools.count(0.0, MEASURE_S)

    async def count() -> float:
        return next(counts)

    operations = cast(ColourOperations, SimpleNamespace(shift=shift))
    splitter = BurstSplitter(POLICY, BY, lambda _: operations, count, clock=lambda: next(times))
    colours = {
        "blue": Colour(10_000, ColourState.ACTIVE, (), ""),
        "green": Colour(0, ColourState.IDLE, (), ""),
    }
    colours_before = Colours(colours, (), 1, "test")
    for _ in range(4):
        await splitter.adjust(colours_before)
    assert shifts == [(HALF, ActionKind.SCALE_OUT)]
    for _ in range(26):
        await splitter.adjust(colours_before.with_shares(HALF, 2, BY))
    assert (BLUE, ActionKind.SCALE_IN) in shifts


async def test_a_split_of_a_person_stays_and_a_colour_that_is_asleep_gets_nothing(
    colours: ColoursUnderTest,
) -> None:
    await colours.write(green=ColourState.ASLEEP)
    await rounds(splitter_of(colours, [150.0] * 9), colours, 6)
    assert await colours.actions() == []
    await colours.write()
    await colours.judge(blue=Condition.STABLE, green=Condition.STABLE)
    await colours.operations().shift(HALF, "because")
    await rounds(splitter_of(colours, [10.0] * 40), colours, 30)
    assert (await colours.operations().colours()).shares == HALF


async def test_a_colour_whose_ingest_does_not_tell_makes_the_count_unknown(tmp_path: Path) -> None:
    assert await accepted_events(ingests_of({"blue": tmp_path})) is None
