"""`hifi demo --colours`: a tour of two colours under load, part by part."""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Any, Final

from hifi.delivery.colours import WHOLE_SHARE, ColourState
from hifi.runtime.errors import Retryable
from hifi_cli.demo.colours.colour_report import colour_report
from hifi_cli.demo.colours.coloured_load import ColouredLoad
from hifi_cli.demo.tour_parts import PartFailed, require
from hifi_cli.demo.verify import Comparison, RequestLogReader
from hifi_cli.mesh_state.colour_command import READY_S
from hifi_infra.colours.colour_mesh import waits_for
from hifi_infra.mesh import running

GAP_S: Final = 5.0
"""After the loss of a colour, every later request is accepted after this time."""
_MOST_S: Final = 1200
"""The load ends after this time at the latest, seconds."""
_DRAIN_S: Final = 240.0
_LANE_REQUESTS: Final = 64
"""Requests of one destination that can be under way when egest is killed."""


@dataclass(slots=True)
class ColourTour(ColouredLoad):
    """One tour. `kill` always ends all of its processes."""

    _killed_ns: int = 0

    async def run(self) -> dict[str, Any]:
        """Take the tour and return its report; the tour ends with the first part that fails.

        Raises:
            HifiError: the colours did not start, or a process of the tour failed.
        """
        await self.prepare(_MOST_S)
        with contextlib.suppress(PartFailed):
            await self._start()
            async with self.sending():
                await self._shift_and_back()
                await self._canary()
                await self._split()
                await self._sleep()
                await self._wake()
                await self._lose()
                await self._deliver_accepted()
        if not self.load.workspace.send_log.exists():
            return colour_report(self.parts.ended, {}, Comparison(), {}, 0)
        comparison = await self.compared()
        declared_duplicates = (
            _LANE_REQUESTS * len({path for path, _ in comparison.arrived}) if self._killed_ns else 0
        )
        return colour_report(self.parts.ended, self.sent(), comparison, self.expected, declared_duplicates)

    async def _start(self) -> None:
        with self.parts.part("two colours start behind one front; blue is active, green is idle") as remarks:
            await self.start()
            remarks.append(f"front at {self.stream.fronts[0].url}")

    async def _shift_and_back(self) -> None:
        with self.parts.part("every request shifts to green, and back to blue") as remarks:
            await self.until_gets("blue")
            await self.until_stable()
            await self.shift(green=WHOLE_SHARE)
            await self.until_gets("green")
            require(await self.share_of("blue") == 0, "blue still gets events")
            await self.until_stable()
            await self.shift(green=0)
            await self.until_gets("blue")
            remarks.append(await self.answers())

    async def _canary(self) -> None:
        with self.parts.part("green gets 10 % of the requests") as remarks:
            await self.until_stable()
            await self.shift(green=WHOLE_SHARE // 10)
            share = await self.share_of("green")
            require(0.02 < share < 0.25, f"green got {share:.1%} of the events")
            remarks.append(f"green got {share:.1%} of the events")

    async def _split(self) -> None:
        with self.parts.part("each colour gets half of the requests") as remarks:
            await self.until_stable()
            await self.shift(green=WHOLE_SHARE // 2)
            share = await self.share_of("green")
            require(0.3 < share < 0.7, f"green got {share:.1%} of the events")
            remarks.append(f"green got {share:.1%} of the events")

    async def _sleep(self) -> None:
        with self.parts.part("blue drains and falls asleep; green gets everything") as remarks:
            await self.until_stable()
            began_s = time.monotonic()
            await self.operations.drain("blue", "the tour", _DRAIN_S, self.tell)
            drained_s = time.monotonic() - began_s
            await self.until_stable()
            await self.operations.sleep("blue", "the tour", _DRAIN_S, self.tell)
            require(running.find(self.stream.plan.folder("blue")) is None, "the mesh of blue still runs")
            remarks.append(
                f"drained after {drained_s:.0f} s; no process of blue runs; {await self.answers()}"
            )

    async def _wake(self) -> None:
        with self.parts.part("blue wakes and gets every request") as remarks:
            began_s = time.monotonic()
            await self.operations.wake("blue", "the tour", READY_S)
            ready_s = time.monotonic() - began_s
            await self.until_stable()
            await self.shift(green=0)
            await self.until_gets("blue")
            remarks.append(f"ready after {ready_s:.0f} s; {await self.answers()}")

    async def _lose(self) -> None:
        name = f"every process of blue is killed; requests are accepted again within {GAP_S:.0f} s"
        with self.parts.part(name) as remarks:
            self._killed_ns = time.time_ns()
            await self.stream.meshes["blue"].kill()

            async def moved() -> ColourState:
                """State of green in the record of the colours."""
                return (await self.operations.colours()).colours["green"].state

            await self.parts.until(
                moved, lambda state: state is ColourState.ACTIVE, lambda state: f"green is {state.value}"
            )
            later_ns = time.time_ns() + round(GAP_S * 1e9)

            async def answered() -> bool:
                """Whether requests that were sent later have their answers in the log."""
                return any(request.sent_ns > later_ns for request in self.sent().values())

            await self.parts.until(answered, bool, lambda _: "requests go on")
            failed_requests = [
                request
                for request in self.sent().values()
                if request.sent_ns >= self._killed_ns - 1e9 and not request.accepted
            ]
            last_s = max(
                ((request.sent_ns - self._killed_ns) / 1e9 for request in failed_requests), default=0.0
            )
            require(
                last_s <= GAP_S, f"a request that was sent {last_s:.1f} s after the loss was not accepted"
            )
            remarks.append(
                f"{len(failed_requests)} requests were not accepted, "
                f"the last one sent {max(last_s, 0):.1f} s after the loss; green has every request"
            )

    async def _deliver_accepted(self) -> None:
        with self.parts.part("blue is back, and delivers what it had accepted before its loss") as remarks:
            folder = self.stream.plan.folder("blue")

            async def waiting() -> list[str]:
                """Conditions that blue waits for."""
                return await waits_for(folder)

            await self.parts.until(
                waiting, lambda conditions: not conditions, lambda conditions: conditions[0], READY_S
            )
            accepted_ids = [
                name
                for name, request in self.sent().items()
                if request.accepted and request.answered_ns <= self._killed_ns + 1e9
            ]
            expected_arrivals = {(path, name) for name in accepted_ids for path in self.expected[name]}
            reader = RequestLogReader(self.load.workspace.request_log)
            late_ns = 0

            async def missing_count() -> int:
                """Deliveries of events accepted before the loss that have not arrived."""
                nonlocal late_ns
                with contextlib.suppress(Retryable):
                    await self.load.count()
                for arrival in await asyncio.to_thread(lambda: list(reader.read())):
                    if (arrival.path, arrival.id) in expected_arrivals:
                        expected_arrivals.discard((arrival.path, arrival.id))
                        late_ns = max(late_ns, arrival.answered_ns)
                return len(expected_arrivals)

            await self.parts.until(
                missing_count, lambda count: count == 0, "{:,} deliveries are missing".format
            )
            after_s = max(0.0, (late_ns - self._killed_ns) / 1e9)
            remarks.append(f"the last of them arrived {after_s:.0f} s after the loss")
            await self.until_stable()
