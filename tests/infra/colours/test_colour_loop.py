"""The loop that follows the record of the colours; the colours and fronts only note what is asked of them."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.support.colours.coloured_kafka import ColoursUnderTest

from hifi.delivery.colours import Colour, Colours, ColourSetup, ColourState
from hifi.kafka.topics import ControlTopics
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.colours import colour_loop
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_loop import ColourLoop
from hifi_infra.colours.coloured_stream import ColouredPlan, ColouredStream
from hifi_infra.colours.front import Front
from hifi_infra.colours.operations import ColourOperations

WITHIN_S = 30
BLUE_ACTIVE = Colours(
    {
        "blue": Colour(10_000, ColourState.ACTIVE, (), ""),
        "green": Colour(0, ColourState.IDLE, (), ""),
    },
    (),
    1,
    "test",
)


async def until(condition: Callable[[], object]) -> None:
    """Poll until a condition holds."""
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)


@dataclass
class NotedColour:
    """A colour that runs once it was started."""

    runs: bool = False
    was_started: bool = False
    beside: list[bool] = field(default_factory=list)
    refuses: bool = False
    """Whether it cannot be started."""
    may_end: asyncio.Event | None = None
    """What its end waits for; None: nothing."""
    stops: int = 0

    async def is_running(self) -> bool:
        return self.runs

    async def start(self, setup: ColourSetup, *, in_background: bool) -> None:
        del setup
        if self.refuses:
            raise Misconfigured("its release has no program")
        self.runs = self.was_started = True
        self.beside.append(in_background)

    async def stop(self) -> None:
        self.stops += 1
        if self.may_end is not None:
            await self.may_end.wait()
        self.runs = False

    async def adjust_priority(self, *, is_only: bool) -> None:
        del is_only


class BrokenFront:
    """A front whose port another program has."""

    url = "http://front"
    running = False

    async def start(self, shares: Mapping[str, int]) -> None:
        raise Retryable(f"the port is in use: {shares}")


@dataclass
class Followed:
    """A loop on a record in memory."""

    log: SimpleNamespace
    blue: NotedColour
    green: NotedColour
    loop: ColourLoop


def followed(*fronts: BrokenFront) -> Followed:
    """A loop whose blue is active and whose green is idle; none of them runs."""

    async def catch_up() -> None:
        """Read the next record, if there is one."""
        log.newest = log.next

    log = SimpleNamespace(newest=BLUE_ACTIVE, next=BLUE_ACTIVE, catch_up=catch_up)
    runners = {"blue": NotedColour(), "green": NotedColour()}
    loop = ColourLoop(cast(ColourLog, log), runners, cast(list[Front], fronts), pytest.fail, "test")
    return Followed(log, runners["blue"], runners["green"], loop)


async def test_a_colour_that_wakes_gives_way_and_one_that_has_died_does_not(
    colours: ColoursUnderTest,
) -> None:
    await colours.write()
    log = ColourLog(colours.kafka, ControlTopics(f"{colours.stream}-control"), "test")
    await log.start()
    runners = {"blue": NotedColour(), "green": NotedColour()}
    green = runners["green"]
    loop = ColourLoop(log, runners, [], lambda actor: colours.operations(actor=actor), "test")
    await loop.bring_about()
    assert [runner.beside for runner in runners.values()] == [[False], [False]]

    await colours.write(green=ColourState.ASLEEP)
    await log.catch_up()
    await loop.bring_about()
    await until(lambda: not green.runs)
    await colours.write()
    await log.catch_up()
    loop._started_s.clear()  # as if it had been asleep for longer
    await loop.bring_about()
    assert green.beside == [False, True]

    green.runs = False
    loop._started_s.clear()
    await loop.bring_about()
    assert green.beside == [False, True, False]
    await log.stop()


async def test_colours_are_started_and_the_record_is_read_while_a_front_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(colour_loop, "LOOP_S", 0)
    under_test = followed(BrokenFront())
    with pytest.raises(Retryable, match="the port is in use"):
        await under_test.loop.bring_about()
    assert (under_test.blue.runs, under_test.green.runs) == (True, True)
    under_test.log.next = BLUE_ACTIVE.with_state("green", ColourState.ASLEEP, 2, "test")
    following = asyncio.create_task(under_test.loop.follow())
    try:
        await until(lambda: not under_test.green.runs)
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
    assert under_test.blue.runs


async def test_a_colour_that_cannot_be_started_does_not_keep_the_other_one_from_it() -> None:
    under_test = followed()
    under_test.blue.refuses = True
    with pytest.raises(Misconfigured, match="its release has no program"):
        await under_test.loop.bring_about()
    assert under_test.green.runs


async def test_the_other_colour_is_started_again_while_one_ends_which_is_not_started_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(colour_loop, "_RESTART_S", 0)
    under_test = followed()
    log, blue, green, loop = under_test.log, under_test.blue, under_test.green, under_test.loop
    await loop.bring_about()
    green.may_end = asyncio.Event()
    log.newest = BLUE_ACTIVE.with_state("green", ColourState.ASLEEP, 2, "test")
    async with asyncio.timeout(WITHIN_S):
        await loop.bring_about()
    await until(lambda: green.stops)
    blue.runs = blue.was_started = False
    async with asyncio.timeout(WITHIN_S):
        await loop.bring_about()
    assert (blue.runs, green.runs, green.stops) == (True, True, 1)
    log.newest = BLUE_ACTIVE
    green.runs = False  # its process has ended, and what ends it has not
    await loop.bring_about()
    assert not green.runs
    green.may_end.set()
    await until(lambda: all(stop.done() for stop in loop._stops.values()))
    await loop.bring_about()
    assert (green.runs, green.stops) == (True, 1)


async def test_nothing_that_ends_a_colour_goes_on_after_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colour_loop, "LOOP_S", 0)
    under_test = followed()
    green = under_test.green
    green.runs, green.may_end = True, asyncio.Event()
    under_test.log.newest = under_test.log.next = BLUE_ACTIVE.with_state(
        "green", ColourState.ASLEEP, 2, "test"
    )
    following = asyncio.create_task(under_test.loop.follow())
    await until(lambda: green.stops)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    assert all(stop.cancelled() for stop in under_test.loop._stops.values())
    assert green.stops == len(under_test.loop._stops) == 1


async def test_a_colour_that_woke_gets_its_write_keys_although_the_command_was_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(colour_loop, "_KEYS_RETRY_S", 60)
    under_test = followed()
    copied: list[str] = []

    async def copy_keys(name: str, *, if_awaited: bool) -> bool:
        assert if_awaited
        copied.append(name)
        if len(copied) == 1:
            raise Retryable("Kafka does not answer")
        return True

    operations = SimpleNamespace(copy_keys=copy_keys)
    under_test.loop._operations = lambda _: cast(ColourOperations, operations)
    awaiting = BLUE_ACTIVE.with_state("green", ColourState.ASLEEP, 2, "test").with_state(
        "green", ColourState.IDLE, 3, "test"
    )
    under_test.log.newest = awaiting
    under_test.blue.refuses = True
    with pytest.raises(Misconfigured):
        await under_test.loop.bring_about()
    assert copied == [], "blue does not run"
    under_test.blue.refuses = False
    under_test.loop._started_s.clear()
    await under_test.loop.bring_about()
    await until(lambda: copied)
    failed_copy = under_test.loop._key_copies["green"]
    await under_test.loop.bring_about()
    assert under_test.loop._key_copies["green"] is failed_copy, "the next attempt is not at once"
    failed_copy.cancel()
    await asyncio.wait([failed_copy])
    await under_test.loop.bring_about()
    await until(under_test.loop._key_copies["green"].done)
    assert copied == ["green"] * 2
    under_test.log.newest = awaiting.with_keys("green", 3)
    await under_test.loop.bring_about()
    assert copied == ["green"] * 2


async def test_an_error_that_nobody_expects_ends_neither_the_loop_nor_the_other_colour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(colour_loop, "LOOP_S", 0)
    under_test = followed()

    async def fail(*, is_only: bool) -> None:
        raise AttributeError(is_only)

    monkeypatch.setattr(under_test.blue, "adjust_priority", fail)
    task = asyncio.create_task(under_test.loop.follow())
    await until(lambda: under_test.green.runs)
    under_test.log.next = None  # what was read cannot be worked on
    await asyncio.sleep(0)
    under_test.log.next, under_test.green.runs = BLUE_ACTIVE, False
    under_test.loop._started_s.clear()
    await until(lambda: under_test.green.runs)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_whoever_runs_two_colours_learns_that_a_task_of_them_has_ended(tmp_path: Path) -> None:
    async def fail() -> None:
        raise AttributeError("a record")

    stream = ColouredStream(ColouredPlan(tmp_path, "hifi", (), lambda _address, _setup: []))
    stream._loops = [asyncio.create_task(asyncio.sleep(60)), asyncio.create_task(fail())]
    with pytest.raises(AttributeError, match="a record"):
        await stream.follow()
    stream._loops[0].cancel()
