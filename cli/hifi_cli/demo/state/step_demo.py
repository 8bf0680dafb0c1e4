"""One run of `hifi demo --state`: a mesh with steps, a day of flights and weather out of order, and what arrived."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import aiohttp

from hifi.runtime.errors import HifiError, Misconfigured
from hifi_cli.demo.cdc.arrivals import read_receipts
from hifi_cli.demo.load_test import LATE_S, MeshRun
from hifi_cli.demo.patience import QUIET_S, TELL_S, Patience
from hifi_cli.demo.state import day_events
from hifi_cli.demo.state.day_events import WEATHER, DayEvent
from hifi_cli.demo.state.step_arrivals import StepArrivals
from hifi_cli.demo.state.step_log import StepLetter, StepLog
from hifi_cli.demo.state.step_pipes import STEPS, WRITE_KEYS, step_pipes
from hifi_cli.demo.state.step_report import ExpectedOutcome, expected_outcomes, step_report
from hifi_cli.demo.tour_steps import StepFailed, TourSteps, require
from hifi_cli.demo.verify import RequestLogReader
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

ACCELERATION: Final = 600
"""A day takes two and a half minutes."""
KILLS: Final = {"egest": 0.2, "normalize": 0.4, "state": 0.6, "enrich": 0.8}
"""Service to the share of the events after which it is killed. enrich is the last, as it needs longest to start."""
_READY_S: Final = 600.0
_ANSWER_S: Final = 30.0
_RETRY_S: Final = 0.5
_SETTINGS: Final = {"HIFI_STATE_INTERVAL_S": "1", "HIFI_STATE_MASTER": "local[1]"}


def with_steps(plan: Plan) -> Plan:
    """The plan of a mesh for this demo."""
    return replace(
        plan,
        console_port=free_port(but={plan.port}),
        scale={"observe": 1, "state": 1},
        env={**plan.env, **_SETTINGS, WRITE_KEYS[WEATHER]: secrets.token_hex(16)},
    )


@dataclass(slots=True)
class StepDemo(MeshRun):
    """One run. `kill` always ends all of its processes.

    Attributes:
        load_test: with the mesh; its plan is of `with_steps`.
        steps: of the tour.
        kills: whether each service on the way is killed once.
        events: in the order in which they are sent.
        killed_ns: service to when it was killed, nanoseconds since 1970 UTC.
    """

    steps: TourSteps
    kills: bool
    events: Sequence[DayEvent] = field(default_factory=day_events.events)
    killed_ns: dict[str, int] = field(default_factory=dict)

    async def run(self) -> dict[str, Any]:
        """Run the demo and return its report; it ends with the first step that fails.

        Raises:
            HifiError: the mesh did not start, a process of the demo failed, or the folder is that of an earlier run.
        """
        self.steps.tell("steps are experimental; starting the mesh")
        events = {event.id: event for event in self.events}
        self.workspace.data.mkdir(parents=True, exist_ok=True)
        self.workspace.write({event.id: event.body() for event in self.events})
        await self.load_test.start(lambda _: step_pipes(self.workspace.destination_port))
        log = StepLog(self.mesh.bootstrap, self.mesh.topics)
        if any([(await log.of_pipe(pipe)).events for pipe in WRITE_KEYS]):
            raise Misconfigured(
                f"{self.workspace.data} has the events of an earlier run: give an empty folder"
            )
        arrivals = StepArrivals(RequestLogReader(self.workspace.request_log), STEPS)
        outcomes: list[ExpectedOutcome] = []
        letters: list[StepLetter] = []
        with contextlib.suppress(StepFailed):
            await self._begin(log)
            await self._replay()
            outcomes = await self._deliver(log, arrivals)
            letters = await log.letters()
            await self._end(arrivals)
        receipts = await read_receipts(self.mesh.bootstrap, self.mesh.topics)
        unanswered = set().union(*receipts.unanswered.values())
        egest_kills = [killed_ns for service, killed_ns in self.killed_ns.items() if service == "egest"]
        report = step_report(
            self.steps.ended,
            events,
            outcomes,
            arrivals,
            letters,
            ambiguous=arrivals.ambiguous(egest_kills, unanswered),
            acceleration=ACCELERATION,
        )
        return report | {"killed": list(self.killed_ns)}

    async def _begin(self, log: StepLog) -> None:
        """Wait until whatever is sent is stamped, and counted by all steps."""
        with self.steps.step(f"{len(STEPS)} steps read the pipes of flights and weather") as remarks:
            names = {step.name for step in STEPS}
            await self.steps.until(
                log.begun_steps,
                lambda begun: begun >= names,
                lambda begun: f"{len(begun & names)} of {len(names)} steps have begun",
                _READY_S,
            )
            for pipe in WRITE_KEYS:
                await self.steps.until(
                    partial(log.unstamped_partitions, pipe),
                    lambda partitions: not partitions,
                    lambda partitions: f"{len(partitions)} partitions have no watermark yet",
                    _READY_S,
                )
            remarks.append(f"{', '.join(sorted(names))} have begun, and normalize stamps every partition")

    async def _replay(self) -> None:
        count, day = len(self.events), f"2013-{day_events.DAY[0]:02}-{day_events.DAY[1]:02}"
        with self.steps.step(
            f"flights and weather of {day} come at most {ACCELERATION} times as fast as they happened, some late"
        ) as remarks:
            kill_after = {round(share * count): service for service, share in KILLS.items()}
            begin_s = told_s = time.monotonic()
            timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                for number, event in enumerate(self.events, 1):
                    due_s = (event.due_ms - self.events[0].due_ms) / 1000 / ACCELERATION
                    await asyncio.sleep(max(0.0, begin_s + due_s - time.monotonic()))
                    await self._send(session, event)
                    if self.kills and number in kill_after:
                        await self._kill_service(kill_after[number])
                    if time.monotonic() - told_s > TELL_S:
                        self.steps.tell(f"   {number:,} of {count:,} events are accepted")
                        told_s = time.monotonic()
            remarks.append(f"{count:,} events in {time.monotonic() - begin_s:.0f} s")
            if self.killed_ns:
                remarks.append(f"kill -9 of {', '.join(self.killed_ns)}")

    async def _send(self, session: aiohttp.ClientSession, event: DayEvent) -> None:
        """Send an event until it is accepted; normalize drops what was sent twice."""
        url = f"{self.mesh.plan.url}/v1/pipes/{event.pipe}/events"
        headers = {"authorization": f"Bearer {self.mesh.plan.env[WRITE_KEYS[event.pipe]]}"}
        begin_s = time.monotonic()
        while True:
            try:
                async with session.post(url, json=event.body(), headers=headers) as answer:
                    if answer.status == 202:
                        return
                    refusal = f"ingest answers {answer.status}: {(await answer.text())[:200]}"
                    require(answer.status in (429, 503), refusal)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                refusal = f"ingest does not answer: {error!r}"
            require(time.monotonic() - begin_s < QUIET_S, refusal)
            await asyncio.sleep(_RETRY_S)

    async def _kill_service(self, service: str) -> None:
        self.steps.tell(f"   kill -9 {service}")
        [instance] = self.mesh.instances[service]
        self.killed_ns[service] = time.time_ns()
        await instance.process.kill()

    async def _deliver(self, log: StepLog, arrivals: StepArrivals) -> list[ExpectedOutcome]:
        """Wait for all events and results; what does not come is told by the report."""
        events = {event.id: event for event in self.events}
        with self.steps.step("every event and every result that is sure arrives") as remarks:
            patience = Patience(self.steps.tell, "events")
            while missing := events.keys() - await self._arrived(arrivals):
                waits_on = await patience.wait(f"{len(events) - len(missing):,} of {len(events):,} arrived")
                require(waits_on, f"{len(missing):,} events are missing")
            logs = {pipe: await log.of_pipe(pipe) for pipe in WRITE_KEYS}
            outcomes = expected_outcomes(STEPS, events, logs)
            patience = Patience(self.steps.tell, "results")
            due_count = sum(len(outcome.due) for outcome in outcomes)
            while missing_count := sum(
                len(outcome.due - arrivals.results[outcome.step.name].keys()) for outcome in outcomes
            ):
                if not await patience.wait(f"{due_count - missing_count:,} of {due_count:,} arrived"):
                    break
                await self._arrived(arrivals)
            remarks.append(f"{len(events):,} events, {due_count - missing_count:,} results of {due_count:,}")
        return outcomes

    async def _end(self, arrivals: StepArrivals) -> None:
        """Wait until no service has anything to do, so that copies have come, too."""
        with self.steps.step("every service runs, and has nothing left to do") as remarks:
            patience = Patience(self.steps.tell, "records that wait")
            while True:
                try:
                    waiting = sum((await self.load_test.waiting()).values())
                except HifiError as error:  # Kafka is slow on a busy machine
                    state = str(error)
                else:
                    state = f"{waiting:,}"
                    if self.mesh.ready and not waiting:
                        break
                require(
                    await patience.wait(state), f"records wait: {state}; {'; '.join(self.mesh.reasons())}"
                )
            restarts = {service: self.mesh.instances[service][0].restarts for service in self.killed_ns}
            require(all(restarts.values()), f"restarts of killed services: {restarts}")
            await asyncio.sleep(LATE_S)
            await self._arrived(arrivals)
            remarks.append(f"{len(arrivals.repeated):,} requests were repeated")

    async def _arrived(self, arrivals: StepArrivals) -> set[str]:
        """Ids of the sent events that have arrived."""
        await self.load_test.count()
        await asyncio.to_thread(arrivals.read)
        return arrivals.ids(WRITE_KEYS)
