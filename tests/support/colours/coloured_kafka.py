"""Two colours on a real Kafka, whose meshes are one small server that is ready, or is not."""

from dataclasses import dataclass
from pathlib import Path

from tests.support.committed import until_readable

from hifi.control.action import Action
from hifi.control.action_right import ActionLog
from hifi.control.verdict import Condition, Verdict
from hifi.delivery.colours import Colour, Colours, ColourState
from hifi.kafka.producer import Producer
from hifi.kafka.topics import ControlTopics, Topics
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_mesh import colour_topics
from hifi_infra.colours.operations import ColourOperations
from hifi_infra.colours.runtime import ColourFolders


@dataclass(slots=True)
class ColoursUnderTest:
    """Two colours whose meshes are one small server that is ready, or is not."""

    kafka: str
    stream: str
    folders: dict[str, Path]
    ready: bool = True

    def operations(self, *, actor: str = "me", forced: bool = False, kafka: str = "") -> ColourOperations:
        return ColourOperations(
            kafka or self.kafka, Topics(self.stream, ()), ColourFolders(self.folders), actor, forced
        )

    async def judge(self, **conditions: Condition) -> None:
        producer = Producer(self.kafka, "test")
        await producer.start()
        for name, condition in conditions.items():
            verdict = Verdict("stream", condition, now_us(), now_us(), ("a reason",))
            record = Record(b"stream", verdict.encode(), [])
            await producer.send_and_wait(colour_topics(self.stream, name).health, 0, [record])
        await producer.stop()

    async def write(self, **states: ColourState) -> None:
        colours = {
            name: Colour(10_000 * (state is ColourState.ACTIVE), state, (), "")
            for name, state in ({"blue": ColourState.ACTIVE, "green": ColourState.IDLE} | states).items()
        }
        await self.write_record(Colours(colours, (), 1, "test"))

    async def write_record(self, colours: Colours) -> None:
        """Write a record, and wait until it is readable."""
        topics = ControlTopics(f"{self.stream}-control")
        log = ColourLog(self.kafka, topics, "test")

        async def change(_: Colours | None) -> Colours:
            return colours

        await log.write(change)
        await log.stop()
        await until_readable(self.kafka, topics.colours)

    async def states(self) -> dict[str, ColourState]:
        return {name: colour.state for name, colour in (await self.operations().colours()).colours.items()}

    async def actions(self) -> list[Action]:
        topic = ControlTopics(f"{self.stream}-control").actions
        await until_readable(self.kafka, topic)
        log = ActionLog(self.kafka, topic, "test")
        await log.start()
        await log.stop()
        return log.history.newest_first
