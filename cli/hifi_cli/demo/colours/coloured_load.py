"""A load on two colours behind one front: start both, send, change the shares, and wait until something is seen."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hifi.control.verdict import Condition
from hifi.delivery.colours import WHOLE_SHARE, ColourState
from hifi.kafka.settings import StreamSettings
from hifi.kafka.topics import Topics
from hifi.runtime.errors import HifiError
from hifi.runtime.settings import load as load_settings
from hifi_cli.demo.colours.colour_report import SLO_S
from hifi_cli.demo.expected import Deliveries, Expected
from hifi_cli.demo.load_test import LoadProcesses
from hifi_cli.demo.topic_lags import end_offsets
from hifi_cli.demo.tour_parts import TourParts
from hifi_cli.demo.verify import Comparison, RequestLogReader, SentEvent, read_send_log
from hifi_cli.mesh_state.audited_command import author
from hifi_cli.mesh_state.colour_command import READY_S, MeshOptions, mesh_command
from hifi_infra.colours.coloured_stream import ColouredPlan, ColouredStream
from hifi_infra.colours.operations import ColourOperations
from hifi_infra.colours.runtime import ColourFolders
from hifi_infra.mesh.plan import Trigger

STREAM: Final = "hifi"
SETTINGS: Final[Mapping[str, str]] = {"HIFI_OBSERVE_STABLE_S": "10", "HIFI_ENRICH_DRIVER_MEMORY": "768m"}
"""Verdicts settle sooner than by default, and two Spark drivers fit a small machine."""
_SEEN: Final = 200
"""Events that a colour must get before a part of the tour says that it gets some."""
_POLL_S: Final = 0.5


@dataclass(slots=True)
class ColouredLoad:
    """Two colours with a sender and a destination. `kill` always ends all of its processes.

    Attributes:
        load: sender and destination; its sender sends to the front.
        rate: events per second.
        trigger: of enrich.
        parts: tell what is waited for.
        settings: more variables for both colours.
        expected: event id to its deliveries.
    """

    load: LoadProcesses
    rate: float
    trigger: Trigger
    parts: TourParts
    settings: Mapping[str, str] = field(default_factory=dict)
    expected: dict[str, Deliveries] = field(default_factory=dict)
    stream: ColouredStream = field(init=False)

    def __post_init__(self) -> None:
        workspace = self.load.workspace
        command = mesh_command(STREAM, workspace.data / "pipes", MeshOptions(trigger=self.trigger))
        plan = ColouredPlan(
            workspace.data,
            STREAM,
            (workspace.ingest_port,),
            command,
            self.trigger,
            env={**workspace.secrets, **SETTINGS, **self.settings},
        )
        self.stream = ColouredStream(plan)

    @property
    def operations(self) -> ColourOperations:
        """Changes the colours, as a person with `hifi colour`."""
        topics = Topics(STREAM, load_settings(StreamSettings).tiers)
        plan = self.stream.plan
        folders = {name: plan.folder(name) for name in self.stream.meshes}
        return ColourOperations(self.stream.cluster.bootstrap, topics, ColourFolders(folders), author())

    async def prepare(self, most_s: float) -> None:
        """Write the pipe and the events of the load, and start the destination.

        Raises:
            HifiError: the destination did not start.
        """
        workspace = self.load.workspace
        rows = await asyncio.to_thread(workspace.write_events, round(self.rate * most_s))
        await asyncio.to_thread(self._write_pipes)
        await self.load.start_destination()
        await workspace.wait_for_destination()
        expectations = Expected(workspace.mask_key)
        self.expected |= {name: expectations.deliveries(name, row) for name, row in rows.items()}

    async def start(self) -> None:
        """Start both colours and the front, and wait until they are ready.

        Raises:
            HifiError: a colour did not start, or is not ready in time.
        """
        await self.stream.start()
        await self.stream.wait_ready(READY_S)

    async def compared(self) -> Comparison:
        """Compare the arrivals with what was accepted, once all has arrived or nothing more does.

        Raises:
            Retryable: the destination failed.
        """
        log = RequestLogReader(self.load.workspace.request_log)
        return await self.load.wait_for_arrivals(log, self.sent(), self.expected)

    async def shift(self, *, green: int) -> None:
        """Give green this share in 1/10,000, and wait until the front does so."""
        await self.operations.shift({"blue": WHOLE_SHARE - green, "green": green}, "the tour")

        async def divided() -> int:
            """Green's share at the front."""
            return (await self.stream.fronts[0].shares())["green"]

        await self.parts.until(divided, lambda share: share == green, "the front gives green {}".format)

    async def until_stable(self) -> None:
        """Wait until every colour that is awake is stable."""

        async def conditions() -> str:
            """Colours that are not stable, with the reasons."""
            texts = []
            for name, colour in (await self.operations.colours()).colours.items():
                if colour.state is not ColourState.ASLEEP:
                    account = await self.operations.account(name)
                    if account.condition is not Condition.STABLE:
                        texts.append(f"{name} is {account.condition.value}: {'; '.join(account.reasons)}")
            return ", ".join(texts)

        await self.parts.until(conditions, lambda text: not text, str)

    async def until_gets(self, name: str) -> None:
        """Wait until a colour has accepted some more events."""
        accepted_before = await self._accepted(name)

        async def count() -> int:
            """Events that the colour got meanwhile."""
            return await self._accepted(name) - accepted_before

        await self.parts.until(count, lambda events: events >= _SEEN, lambda _: f"{name} gets events")

    async def share_of(self, name: str) -> float:
        """A colour's share of the next events, between 0 and 1."""
        accepted_before = {colour: await self._accepted(colour) for colour in self.stream.meshes}

        async def counts() -> dict[str, int]:
            """Events of each colour since then."""
            return {colour: await self._accepted(colour) - count for colour, count in accepted_before.items()}

        accepted_counts = await self.parts.until(
            counts, lambda numbers: sum(numbers.values()) >= 3 * _SEEN, lambda _: "events are counted"
        )
        return accepted_counts[name] / sum(accepted_counts.values())

    async def answers(self) -> str:
        """The number of requests that were not accepted so far, for people."""
        requests = self.sent().values()
        refused_count = sum(not request.accepted for request in requests)
        return f"{refused_count:,} of {len(requests):,} requests so far were not accepted"

    def sent(self) -> dict[str, SentEvent]:
        """The log of the sender."""
        return read_send_log(self.load.workspace.send_log)

    def tell(self, text: str) -> None:
        """Print progress within a part of the tour."""
        self.parts.tell(f"   {text}")

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Sends while the block runs, and ends when the last request is answered."""
        send_task = asyncio.create_task(self.load.send(self.rate))
        try:
            yield
        finally:
            while self.load.sender is None or not self.load.sender.started:
                await asyncio.sleep(_POLL_S)
            await self.load.sender.stop(60)
            with contextlib.suppress(HifiError):
                await send_task

    async def stop(self) -> None:
        """End all processes gracefully."""
        await self.stream.stop()
        await self.load.kill_outside()

    async def kill(self) -> None:
        """End all processes immediately."""
        await self.load.kill_outside()
        await self.stream.kill()

    def _write_pipes(self) -> None:
        """The pipe of the workspace, with a p95 that one machine with two colours can keep."""
        self.load.workspace.pipes()
        file = self.load.workspace.data / "pipes" / "flights.yaml"
        file.write_text(file.read_text().replace("p95: 1s", f"p95: {SLO_S:.0f}s"))

    async def _accepted(self, name: str) -> int:
        """Events that a colour has accepted so far: the records of its topic `raw`."""
        topics = Topics(STREAM, load_settings(StreamSettings).tiers)
        offsets = await end_offsets(self.stream.meshes[name].kafka, topics)
        return sum(end for partition, end in offsets.items() if partition.topic == topics.raw)
