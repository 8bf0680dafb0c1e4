"""One run of `hifi demo --state`: a day of flights and weather out of order, and what was read of it and arrived.

The mesh has steps and a view. The view and `hifi query` are read while events come, results after `hifi wait`.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import aiohttp

from hifi.record.cloudevents.timestamps import format_us
from hifi.runtime.clock import now_us
from hifi.runtime.errors import HifiError, Misconfigured
from hifi_cli.demo.cdc.arrivals import read_receipts
from hifi_cli.demo.load_test import LATE_S, MeshRun
from hifi_cli.demo.patience import QUIET_S, TELL_S, Patience
from hifi_cli.demo.state import day_events
from hifi_cli.demo.state.day_events import WEATHER, DayEvent, FlightEvent
from hifi_cli.demo.state.live_reads import (
    READ_KEY,
    VIEW,
    differing_ids,
    queried_rows,
    run_hifi,
    view_rows,
    write_view,
)
from hifi_cli.demo.state.step_arrivals import StepArrivals
from hifi_cli.demo.state.step_log import StepLetter, StepLog
from hifi_cli.demo.state.step_pipes import STEPS, WRITE_KEYS, step_pipes
from hifi_cli.demo.state.step_report import ExpectedOutcome, expected_outcomes, step_report
from hifi_cli.demo.tour_parts import PartFailed, TourParts, require
from hifi_cli.demo.verify import RequestLogReader
from hifi_cli.query.view_rows import Row
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

ACCELERATION: Final = 600
"""A day takes two and a half minutes."""
KILLS: Final = {
    "ingest": 0.1,
    "egest": 0.2,
    "normalize": 0.3,
    "retrier": 0.4,
    "view": 0.5,
    "observe": 0.6,
    "state": 0.7,
    "enrich": 0.8,
}
"""Service to the share of the events after which it is killed. enrich is the last, as it needs longest to start."""
READ_AFTER: Final = 0.55
"""Share of the events after which they are read while the others come: soon after the kill of view."""
_READY_S: Final = 600.0
_ANSWER_S: Final = 30.0
_RETRY_S: Final = 0.5
_LONGEST_WAIT: Final = "10m"
_SETTINGS: Final = {"HIFI_STATE_INTERVAL_S": "1", "HIFI_STATE_MASTER": "local[1]"}


def with_steps(plan: Plan) -> Plan:
    """The plan of a mesh for this demo."""
    console_port = free_port(but={plan.port})
    keys = {name: secrets.token_hex(16) for name in (WRITE_KEYS[WEATHER], READ_KEY)}
    return replace(
        plan,
        console_port=console_port,
        view_port=free_port(but={plan.port, console_port}),
        views=plan.data / "views-declared",
        scale={"observe": 1, "state": 1, "view": 1},
        env={**plan.env, **_SETTINGS, **keys},
    )


@dataclass(slots=True)
class StepDemo(MeshRun):
    """One run. `kill` always ends all of its processes.

    Attributes:
        load_test: with the mesh; its plan is of `with_steps`.
        parts: of the run.
        kills: whether each service is killed once.
        events: in the order in which they are sent.
        accepted_count: how many of them, from the first on, are accepted.
        killed_ns: service to when it was killed, nanoseconds since 1970 UTC.
    """

    parts: TourParts
    kills: bool
    events: Sequence[DayEvent] = field(default_factory=day_events.events)
    accepted_count: int = 0
    killed_ns: dict[str, int] = field(default_factory=dict)

    async def run(self) -> dict[str, Any]:
        """Run the demo and return its report; it ends with the first part that fails.

        Raises:
            HifiError: the mesh did not start, a process of the demo failed, or the folder is that of an earlier run.
        """
        self.parts.tell("steps are experimental; starting the mesh")
        events = {event.id: event for event in self.events}
        self.workspace.data.mkdir(parents=True, exist_ok=True)
        self.workspace.write({event.id: event.body() for event in self.events})
        assert self.mesh.plan.views is not None
        write_view(self.mesh.plan.views)
        await self.load_test.start(lambda _: step_pipes(self.workspace.destination_port))
        log = StepLog(self.mesh.bootstrap, self.mesh.topics)
        if any([(await log.of_pipe(pipe)).events for pipe in WRITE_KEYS]):
            raise Misconfigured(
                f"{self.workspace.data} has the events of an earlier run: give an empty folder"
            )
        arrivals = StepArrivals(RequestLogReader(self.workspace.request_log), STEPS)
        outcomes: list[ExpectedOutcome] = []
        letters: list[StepLetter] = []
        with contextlib.suppress(PartFailed):
            await self._begin(log)
            await self._replay()
            await self._wait_for_outcomes()
            outcomes = await self._deliver(log, arrivals)
            letters = await log.letters()
            await self._end(arrivals)
        receipts = await read_receipts(self.mesh.bootstrap, self.mesh.topics)
        unanswered = set().union(*receipts.unanswered.values())
        egest_kills = [killed_ns for service, killed_ns in self.killed_ns.items() if service == "egest"]
        report = step_report(
            self.parts.ended,
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
        with self.parts.part(f"{len(STEPS)} steps read the pipes of flights and weather") as remarks:
            step_names = {step.name for step in STEPS}
            await self.parts.until(
                log.begun_steps,
                lambda begun_steps: begun_steps >= step_names,
                lambda begun_steps: f"{len(begun_steps & step_names)} of {len(step_names)} steps have begun",
                _READY_S,
            )
            for pipe in WRITE_KEYS:
                await self.parts.until(
                    partial(log.unstamped_partitions, pipe),
                    lambda partitions: not partitions,
                    lambda partitions: f"{len(partitions)} partitions have no watermark yet",
                    _READY_S,
                )
            remarks.append(
                f"{', '.join(sorted(step_names))} have begun, and normalize stamps every partition"
            )

    async def _replay(self) -> None:
        """Send the events, and read those that are accepted while the others come."""
        count, day = len(self.events), f"2013-{day_events.DAY[0]:02}-{day_events.DAY[1]:02}"
        begin_s = time.monotonic()
        sending = asyncio.create_task(self._send_all(begin_s))
        try:
            with self.parts.part(
                f"flights and weather of {day} come at most {ACCELERATION} times as fast as they happened, some late"
            ) as remarks:
                while self.accepted_count < READ_AFTER * count and not sending.done():
                    await asyncio.sleep(_RETRY_S)
                if sending.done():
                    await sending
                remarks.append(f"{self.accepted_count:,} of {count:,} events are accepted")
            await self._read_meanwhile()
            with self.parts.part("the other events come") as remarks:
                await sending
                remarks.append(f"{count:,} events in {time.monotonic() - begin_s:.0f} s")
                if self.killed_ns:
                    remarks.append(f"kill -9 of {', '.join(self.killed_ns)}")
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_all(self, begin_s: float) -> None:
        """Send the events at their pace from a time on (monotonic, seconds), and kill services."""
        count = len(self.events)
        kill_after = {round(share * count): service for service, share in KILLS.items()}
        told_s = begin_s
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for number, event in enumerate(self.events, 1):
                due_s = (event.due_ms - self.events[0].due_ms) / 1000 / ACCELERATION
                await asyncio.sleep(max(0.0, begin_s + due_s - time.monotonic()))
                await self._send(session, event)
                self.accepted_count = number
                if self.kills and number in kill_after:
                    await self._kill_service(kill_after[number])
                if time.monotonic() - told_s > TELL_S:
                    self.parts.tell(f"   {number:,} of {count:,} events are accepted")
                    told_s = time.monotonic()

    async def _read_meanwhile(self) -> None:
        """Compare the rows of the view and of `hifi query` with the flights that are accepted by now."""
        accepted_flights = [
            event for event in self.events[: self.accepted_count] if isinstance(event, FlightEvent)
        ]
        sent_flights = {event.id: event for event in self.events if isinstance(event, FlightEvent)}
        with self.parts.part(
            f"the view {VIEW} and `hifi query` have each flight that was accepted, with its values"
        ) as remarks:
            # `hifi query` reads `enriched` as it is; the view, whose source it is, waits until it is complete.
            rows_of = {
                "the view": await self._view_rows(format_us(now_us()).decode()),
                "hifi query": await queried_rows(self.workspace.data),
            }
            for subject, rows in rows_of.items():
                flight_ids = differing_ids(rows, accepted_flights, sent_flights)
                examples = ", ".join(flight_ids[:3])
                require(not flight_ids, f"{subject}: {len(flight_ids):,} are missing or differ: {examples}")
                remarks.append(f"{subject}: {len(rows):,} rows")
            remarks.append(f"{len(accepted_flights):,} flights were accepted before")

    async def _view_rows(self, at_least: str) -> list[Row]:
        """The rows of the view, complete until a time (RFC 3339); waits for a service that starts again."""
        url, key = self.mesh.plan.view_console, self.mesh.plan.env[READ_KEY]
        assert url is not None
        end_s = time.monotonic() + _READY_S
        while True:
            try:
                return await view_rows(url, key, at_least, len(self.events))
            except Misconfigured:
                raise
            except HifiError:
                if time.monotonic() > end_s:
                    raise
                await asyncio.sleep(_RETRY_S)

    async def _wait_for_outcomes(self) -> None:
        with self.parts.part("`hifi wait` ends: every event has its outcome") as remarks:
            for pipe in WRITE_KEYS:
                await run_hifi(self.workspace.data, "wait", pipe, "--within", _LONGEST_WAIT)
            remarks.append(f"pipes {' and '.join(WRITE_KEYS)}")

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
        self.parts.tell(f"   kill -9 {service}")
        [instance] = self.mesh.instances[service]
        self.killed_ns[service] = time.time_ns()
        await instance.process.kill()

    async def _deliver(self, log: StepLog, arrivals: StepArrivals) -> list[ExpectedOutcome]:
        """Require all events, and wait for results; the report names those that do not come."""
        events = {event.id: event for event in self.events}
        with self.parts.part("every event has arrived, and every result that is sure arrives") as remarks:
            missing_ids = events.keys() - await self._arrived(arrivals)
            require(not missing_ids, f"{len(missing_ids):,} events are missing")
            logs = {pipe: await log.of_pipe(pipe) for pipe in WRITE_KEYS}
            outcomes = expected_outcomes(STEPS, events, logs)
            patience = Patience(self.parts.tell, "results")
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
        with self.parts.part("every service runs, and has nothing left to do") as remarks:
            patience = Patience(self.parts.tell, "records that wait")
            while True:
                try:
                    waiting = sum((await self.load_test.waiting()).values())
                except HifiError as error:  # Kafka is slow on a busy machine
                    waiting_text = str(error)
                else:
                    waiting_text = f"{waiting:,}"
                    if self.mesh.ready and not waiting:
                        break
                require(
                    await patience.wait(waiting_text),
                    f"records wait: {waiting_text}; {'; '.join(self.mesh.reasons())}",
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
