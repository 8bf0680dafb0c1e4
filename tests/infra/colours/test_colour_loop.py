"""The loop that follows the record of the colours, on a real Kafka; the colours only note what is asked of them."""

from dataclasses import dataclass, field

from tests.support.colours.coloured_kafka import ColoursUnderTest

from hifi.delivery.colours import ColourSetup, ColourState
from hifi.kafka.topics import ControlTopics
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_loop import ColourLoop


@dataclass
class NotedColour:
    """A colour that runs once it was started."""

    runs: bool = False
    was_started: bool = False
    beside: list[bool] = field(default_factory=list)

    async def is_running(self) -> bool:
        return self.runs

    async def start(self, setup: ColourSetup, *, in_background: bool) -> None:
        del setup
        self.runs = self.was_started = True
        self.beside.append(in_background)

    async def stop(self) -> None:
        self.runs = False

    async def adjust_priority(self, *, is_only: bool) -> None:
        del is_only


async def test_a_colour_that_wakes_gives_way_and_one_that_has_died_does_not(
    colours: ColoursUnderTest,
) -> None:
    await colours.write()
    log = ColourLog(colours.kafka, ControlTopics(f"{colours.stream}-control").colours, "test")
    await log.start()
    runners = {"blue": NotedColour(), "green": NotedColour()}
    green = runners["green"]
    loop = ColourLoop(log, runners, [], lambda actor: colours.operations(actor=actor), "test")
    await loop.bring_about()
    assert [runner.beside for runner in runners.values()] == [[False], [False]]

    await colours.write(green=ColourState.ASLEEP)
    await log.catch_up()
    await loop.bring_about()
    assert not green.runs
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
