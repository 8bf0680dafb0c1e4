"""`hifi demo --colours`: a tour of two colours under load, step by step."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hifi.control.colours import WHOLE_SHARE, ColourState
from hifi.control.verdict import Condition
from hifi.errors import HifiError, Retryable
from hifi.settings import StreamSettings, load
from hifi.topics import Topics
from hifi_cli.demo.colours.colour_report import SLO_S, colour_report
from hifi_cli.demo.expected import Deliveries, Expected
from hifi_cli.demo.load_test import LoadProcesses
from hifi_cli.demo.topic_lags import end_offsets
from hifi_cli.demo.tour_steps import StepFailed, TourSteps, require
from hifi_cli.demo.verify import Comparison, RequestLogReader, SentEvent, read_send_log
from hifi_cli.mesh_state.colour_command import READY_S, MeshOptions, mesh_command
from hifi_cli.mesh_state.control_plane import author
from hifi_infra.colours.colour_mesh import waits_for
from hifi_infra.colours.coloured_stream import ColouredPlan, ColouredStream
from hifi_infra.colours.switch import Switch
from hifi_infra.mesh import running
from hifi_infra.mesh.plan import Trigger

STREAM: Final = "hifi"
GAP_S: Final = 5.0
"""After the loss of a colour, every later request is accepted after this time."""
SETTINGS: Final[Mapping[str, str]] = {"HIFI_OBSERVE_STABLE_S": "10", "HIFI_ENRICH_DRIVER_MEMORY": "768m"}
"""Verdicts settle sooner than by default, and two Spark drivers fit a small machine."""
_MOST_S: Final = 1200
"""The load ends after this time at the latest, seconds."""
_SEEN: Final = 200
"""Events that a colour must get before a step says that it gets some."""
_DRAIN_S: Final = 240.0
_POLL_S: Final = 0.5
_LANE_REQUESTS: Final = 64
"""Requests of one destination that can be under way when egest is killed."""


@dataclass(slots=True)
class ColourTour:
    """One tour. `kill` always ends all of its processes.

    Attributes:
        load: sender and destination; its sender sends to the front.
        rate: events per second.
        trigger: of enrich.
        steps: of the tour.
    """

    load: LoadProcesses
    rate: float
    trigger: Trigger
    steps: TourSteps
    stream: ColouredStream = field(init=False)
    _killed_ns: int = 0
    _expected: dict[str, Deliveries] = field(default_factory=dict)

    def __post_init__(self) -> None:
        workspace = self.load.workspace
        command = mesh_command(STREAM, workspace.data / "pipes", MeshOptions(trigger=self.trigger))
        plan = ColouredPlan(
            workspace.data,
            STREAM,
            workspace.ingest_port,
            command,
            self.trigger,
            {**workspace.secrets, **SETTINGS},
        )
        self.stream = ColouredStream(plan)

    async def run(self) -> dict[str, Any]:
        """Take the tour and return its report; the tour ends with the first step that fails.

        Raises:
            HifiError: the colours did not start, or a process of the tour failed.
        """
        workspace = self.load.workspace
        rows = await asyncio.to_thread(workspace.write_events, round(self.rate * _MOST_S))
        await asyncio.to_thread(self._write_pipes)
        await self.load.start_destination()
        await workspace.wait_for_destination()
        maker = Expected(workspace.mask_key)
        self._expected = {name: maker.deliveries(name, row) for name, row in rows.items()}
        with contextlib.suppress(StepFailed):
            await self._start()
            async with self._sending():
                await self._shift_and_back()
                await self._canary()
                await self._split()
                await self._sleep()
                await self._wake()
                await self._lose()
                await self._deliver_the_rest()
        if not workspace.send_log.exists():
            return colour_report(self.steps.ended, {}, Comparison(), {}, 0)
        sent = read_send_log(workspace.send_log)
        comparison = await self.load.wait_for_arrivals(
            RequestLogReader(workspace.request_log), sent, self._expected
        )
        declared = _LANE_REQUESTS * len({path for path, _ in comparison.arrived}) if self._killed_ns else 0
        return colour_report(self.steps.ended, sent, comparison, self._expected, declared)

    async def stop(self) -> None:
        """End all processes gracefully."""
        await self.stream.stop()
        await self.load.kill_outside()

    async def kill(self) -> None:
        """End all processes immediately."""
        await self.load.kill_outside()
        await self.stream.kill()

    @property
    def _switch(self) -> Switch:
        topics = Topics(STREAM, load(StreamSettings).tiers)
        plan = self.stream.plan
        folders = {name: plan.folder(name) for name in self.stream.meshes}
        return Switch(self.stream.cluster.bootstrap, topics, folders, author())

    def _write_pipes(self) -> None:
        """The pipe of the workspace, with a p95 that one machine with two colours can keep."""
        self.load.workspace.pipes()
        file = self.load.workspace.data / "pipes" / "flights.yaml"
        file.write_text(file.read_text().replace("p95: 1s", f"p95: {SLO_S:.0f}s"))

    async def _start(self) -> None:
        with self.steps.step("two colours start behind one front; blue is light, green is dark") as seen:
            await self.stream.start()
            await self.stream.wait_ready(READY_S)
            seen.append(f"front at {self.stream.front.url}")

    async def _shift_and_back(self) -> None:
        with self.steps.step("every request shifts to green, and back to blue") as seen:
            await self._until_gets("blue")
            await self._until_stable()
            await self._shift(green=WHOLE_SHARE)
            await self._until_gets("green")
            require(await self._share_of("blue") == 0, "blue still gets events")
            await self._until_stable()
            await self._shift(green=0)
            await self._until_gets("blue")
            seen.append(await self._answers())

    async def _canary(self) -> None:
        with self.steps.step("green gets 10 % of the requests") as seen:
            await self._until_stable()
            await self._shift(green=WHOLE_SHARE // 10)
            share = await self._share_of("green")
            require(0.02 < share < 0.25, f"green got {share:.1%} of the events")
            seen.append(f"green got {share:.1%} of the events")

    async def _split(self) -> None:
        with self.steps.step("each colour gets half of the requests") as seen:
            await self._until_stable()
            await self._shift(green=WHOLE_SHARE // 2)
            share = await self._share_of("green")
            require(0.3 < share < 0.7, f"green got {share:.1%} of the events")
            seen.append(f"green got {share:.1%} of the events")

    async def _sleep(self) -> None:
        with self.steps.step("blue drains and falls asleep; green gets everything") as seen:
            await self._until_stable()
            began_s = time.monotonic()
            await self._switch.drain("blue", "the tour", _DRAIN_S, self._tell)
            drained_s = time.monotonic() - began_s
            await self._until_stable()
            await self._switch.sleep("blue", "the tour", _DRAIN_S, self._tell)
            require(running.find(self.stream.plan.folder("blue")) is None, "the mesh of blue still runs")
            seen.append(f"drained after {drained_s:.0f} s; no process of blue runs; {await self._answers()}")

    async def _wake(self) -> None:
        with self.steps.step("blue wakes and gets every request") as seen:
            began_s = time.monotonic()
            await self._switch.wake("blue", "the tour", READY_S)
            ready_s = time.monotonic() - began_s
            await self._until_stable()
            await self._shift(green=0)
            await self._until_gets("blue")
            seen.append(f"ready after {ready_s:.0f} s; {await self._answers()}")

    async def _lose(self) -> None:
        name = f"every process of blue is killed; requests are accepted again within {GAP_S:.0f} s"
        with self.steps.step(name) as seen:
            self._killed_ns = time.time_ns()
            await self.stream.meshes["blue"].kill()

            async def moved() -> ColourState:
                """What the record of the colours says of green."""
                return (await self._switch.colours()).colours["green"].state

            await self.steps.until(
                moved, lambda state: state is ColourState.LIGHT, lambda state: f"green is {state.value}"
            )
            later_ns = time.time_ns() + round(GAP_S * 1e9)

            async def answered() -> bool:
                """Whether requests that were sent later have their answers in the log."""
                return any(one.sent_ns > later_ns for one in self._sent().values())

            await self.steps.until(answered, bool, lambda _: "requests go on")
            failed = [
                one
                for one in self._sent().values()
                if one.sent_ns >= self._killed_ns - 1e9 and not one.accepted
            ]
            last_s = max(((one.sent_ns - self._killed_ns) / 1e9 for one in failed), default=0.0)
            require(
                last_s <= GAP_S, f"a request that was sent {last_s:.1f} s after the loss was not accepted"
            )
            seen.append(
                f"{len(failed)} requests were not accepted, the last one sent {max(last_s, 0):.1f} s after the loss; "
                "green has every request"
            )

    async def _deliver_the_rest(self) -> None:
        with self.steps.step("blue is back, and delivers what it had accepted before its loss") as seen:
            folder = self.stream.plan.folder("blue")

            async def waiting() -> list[str]:
                """What blue waits for."""
                return await waits_for(folder)

            await self.steps.until(waiting, lambda found: not found, lambda found: found[0], READY_S)
            before = [
                name
                for name, one in self._sent().items()
                if one.accepted and one.answered_ns <= self._killed_ns + 1e9
            ]
            places = {(path, name) for name in before for path in self._expected[name]}
            reader = RequestLogReader(self.load.workspace.request_log)
            late_ns = 0

            async def missing() -> int:
                """Deliveries of events accepted before the loss that have not arrived."""
                nonlocal late_ns
                with contextlib.suppress(Retryable):
                    await self.load.count()
                for arrival in await asyncio.to_thread(lambda: list(reader.read())):
                    if (arrival.path, arrival.id) in places:
                        places.discard((arrival.path, arrival.id))
                        late_ns = max(late_ns, arrival.answered_ns)
                return len(places)

            await self.steps.until(missing, lambda count: count == 0, "{:,} deliveries are missing".format)
            after_s = max(0.0, (late_ns - self._killed_ns) / 1e9)
            seen.append(f"the last of them arrived {after_s:.0f} s after the loss")
            await self._until_stable()

    async def _shift(self, *, green: int) -> None:
        await self._switch.shift({"blue": WHOLE_SHARE - green, "green": green}, "the tour")

        async def divided() -> int:
            """Green's share at the front."""
            return (await self.stream.front.shares())["green"]

        await self.steps.until(divided, lambda share: share == green, "the front gives green {}".format)

    async def _until_stable(self) -> None:
        """Wait until every colour that is awake is stable."""

        async def conditions() -> str:
            """Colours that are not stable, with the reasons."""
            texts = []
            for name, one in (await self._switch.colours()).colours.items():
                if one.state is not ColourState.ASLEEP:
                    account = await self._switch.account(name)
                    if account.condition is not Condition.STABLE:
                        texts.append(f"{name} is {account.condition.value}: {'; '.join(account.reasons)}")
            return ", ".join(texts)

        await self.steps.until(conditions, lambda text: not text, str)

    async def _until_gets(self, name: str) -> None:
        before = await self._accepted(name)

        async def count() -> int:
            """Events that the colour got meanwhile."""
            return await self._accepted(name) - before

        await self.steps.until(count, lambda found: found >= _SEEN, lambda _: f"{name} gets events")

    async def _share_of(self, name: str) -> float:
        """A colour's share of the next events, between 0 and 1."""
        before = {one: await self._accepted(one) for one in self.stream.meshes}

        async def counts() -> dict[str, int]:
            """Events of each colour since then."""
            return {one: await self._accepted(one) - count for one, count in before.items()}

        found = await self.steps.until(
            counts, lambda seen: sum(seen.values()) >= 3 * _SEEN, lambda _: "events are counted"
        )
        return found[name] / sum(found.values())

    async def _accepted(self, name: str) -> int:
        """Events that a colour has accepted so far: the records of its topic `raw`."""
        topics = Topics(STREAM, load(StreamSettings).tiers)
        offsets = await end_offsets(self.stream.meshes[name].kafka, topics)
        return sum(end for partition, end in offsets.items() if partition.topic == topics.raw)

    async def _answers(self) -> str:
        sent = self._sent().values()
        return f"{sum(not one.accepted for one in sent):,} of {len(sent):,} requests so far were not accepted"

    def _sent(self) -> dict[str, SentEvent]:
        return read_send_log(self.load.workspace.send_log)

    def _tell(self, text: str) -> None:
        self.steps.tell(f"   {text}")

    @contextlib.asynccontextmanager
    async def _sending(self) -> AsyncIterator[None]:
        """Sends while the block runs, and ends when the last request is answered."""
        sending = asyncio.create_task(self.load.send(self.rate))
        try:
            yield
        finally:
            while self.load.sender is None or not self.load.sender.started:
                await asyncio.sleep(_POLL_S)
            await self.load.sender.stop(60)
            with contextlib.suppress(HifiError):
                await sending
