"""`hifi demo --control`: a tour of the control plane on a mesh under load, part by part."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from hifi.control.action import ActionKind, ActionState
from hifi.control.action_right import ActionLog
from hifi.control.releases.deployment import Deployment, DeploymentState
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.control.verdict import Condition
from hifi.delivery.dead_letters.letter import DeadLetter, DeadLetterFilter
from hifi.delivery.dead_letters.reader import letters
from hifi.delivery.dead_letters.replay import replay
from hifi.kafka.producer import Producer
from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi_cli.demo.expected import Expected
from hifi_cli.demo.load_test import MeshRun
from hifi_cli.demo.releases import SERVICE, write_leaking_release
from hifi_cli.demo.tour_parts import PartFailed, TourParts, require
from hifi_cli.demo.tour_report import report
from hifi_cli.demo.verify import Comparison, RequestLogReader, SentEvent, read_send_log
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_cli.mesh_state.manage_api import ManageApi
from hifi_cli.mesh_state.observe_api import ObserveApi, read_token
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

INSTANCES: Final = 2
"""Of the service that is deployed; a third one is more than the load needs."""
SETTINGS: Final[Mapping[str, str]] = {
    "HIFI_ROLLOUT_PHASES": "10,50,100",
    "HIFI_ROLLOUT_PHASE_S": "20",
    "HIFI_ROLLOUT_PHASE_EVENTS": "100",
    "HIFI_ROLLOUT_NEW_PIPE_RATE": "0",
    "HIFI_DEPLOY_STABLE_S": "30",
    "HIFI_DEPLOY_EVENTS": "100",
    "HIFI_SCALE_DOWN_AFTER_S": "5",
    "HIFI_OBSERVE_STABLE_S": "10",
    "HIFI_OBSERVE_SETTLE_S": "20",
}
"""Everything settles sooner than by default, so that the tour takes minutes."""
_MOST_S: Final = 900
"""The load ends after this time at the latest, seconds."""
_CLOSED_S: Final = 240
_AMENDED_S: Final = 60
_DRAIN_S: Final = 60
_POLL_S: Final = 0.5
_WANTED: Final = {"p95": "10s"}
"""SLO of the pipe: sender, destination and every restart share one machine with the mesh."""


def with_control_plane(plan: Plan) -> Plan:
    """The plan of a mesh for a tour."""
    port = free_port(but={plan.port})
    return replace(
        plan,
        control=True,
        console_port=port,
        manage_port=free_port(but={plan.port, port}),
        scale={"observe": 1, SERVICE: INSTANCES},
        bounds={SERVICE: (INSTANCES, INSTANCES + 1)},
        env={**plan.env, **SETTINGS},
    )


@dataclass(slots=True)
class ControlTour(MeshRun):
    """One tour. `kill` always ends all of its processes.

    Attributes:
        load_test: with the mesh; its plan is of `with_control_plane`.
        rate: events per second.
        parts: of the tour.
        replayed: ids of the events that were dead letters and were replayed.
    """

    rate: float
    parts: TourParts
    replayed: set[str] = field(default_factory=set)

    async def run(self) -> dict[str, Any]:
        """Take the tour and return its report; the tour ends with the first part that fails.

        Raises:
            HifiError: the mesh did not start, or a process of the tour failed.
        """
        workspace, mesh = self.load_test.workspace, self.load_test.mesh
        rows = await asyncio.to_thread(workspace.write_events, round(self.rate * _MOST_S))
        (pipe,) = await asyncio.to_thread(workspace.pipes)
        pipe = _changed(pipe, slo=_WANTED)
        self.parts.tell("starting the mesh and its control plane")
        await self.load_test.start(lambda _: [])
        assert mesh.plan.control_topics is not None
        log = ActionLog(mesh.bootstrap, mesh.plan.control_topics.actions, "hifi-tour")
        await log.start()
        control = ControlPlane(mesh.bootstrap, mesh.plan.control_topics)
        try:
            with contextlib.suppress(PartFailed):
                await self._declare(control, pipe)
                async with self._load():
                    await self._ramp(control, _with_header(pipe))
                    await self._roll_back_pipe(control, _broken(pipe))
                    await self._replay()
                    release = await asyncio.to_thread(
                        write_leaking_release, workspace.data / "leaking-release"
                    )
                    await self._refuse_scale_in(control, release)
                    await self._roll_back_release(control, release)
                    await self._scale_in(log)
                    await self._settle(control)
        finally:
            await log.stop()
        if not workspace.send_log.exists():
            return report(self.parts.ended, {}, Comparison(), {}, set())
        sent_events = read_send_log(workspace.send_log)
        expectations = Expected(workspace.mask_key)
        expected = {name: expectations.deliveries(name, rows[name]) for name in sent_events}
        comparison = await self.load_test.wait_for_arrivals(
            RequestLogReader(workspace.request_log), sent_events, expected
        )
        with contextlib.suppress(PartFailed):
            await self._agree(sent_events, expected, comparison)
        return report(
            self.parts.ended,
            sent_events,
            comparison,
            expected,
            {letter.summary()["event"] for letter in await self._dead_letters()},
        )

    async def _declare(self, control: ControlPlane, pipe: Pipe) -> None:
        with self.parts.part("a pipe is declared through the management API") as remarks:
            await asyncio.to_thread(self._change_pipe, pipe)
            status = await self.parts.until(
                lambda: _status(control, pipe),
                lambda status: status.state.final,
                lambda status: status.reason,
            )
            require(status.state is RolloutState.IN_FORCE, status.reason)
            remarks.append(f"revision {status.revision} is in force")

    async def _ramp(self, control: ControlPlane, pipe: Pipe) -> None:
        with self.parts.part("a changed pipe gets its keys in phases") as remarks:
            await self.parts.until(
                self._arrived, lambda count: count > 0, lambda _: "the first events arrive"
            )
            await asyncio.to_thread(self._change_pipe, pipe)
            shares: list[int] = []

            async def read_status() -> RolloutStatus:
                """The status, whose shares are remembered."""
                status = await _status(control, pipe)
                if status.state is RolloutState.RAMPING and status.share and status.share not in shares:
                    shares.append(status.share)
                return status

            status = await self.parts.until(read_status, lambda status: status.state.final, _phase)
            phases = ", ".join(f"{share / 100:g} %" for share in shares)
            require(status.state is RolloutState.IN_FORCE, f"{status.state.value}: {status.reason}")
            require({1000, 5000} <= set(shares), f"only the phases {phases} were seen")
            remarks.append(f"{phases} of the keys, then revision {status.revision} is in force")

    async def _roll_back_pipe(self, control: ControlPlane, pipe: Pipe) -> None:
        with self.parts.part("a version that makes dead letters is rolled back") as remarks:
            await asyncio.to_thread(self._change_pipe, pipe)
            status = await self.parts.until(
                lambda: _status(control, pipe), lambda status: status.state.final, _phase
            )
            require(status.state is RolloutState.ROLLED_BACK, f"{status.state.value}: {status.reason}")
            remarks.append(status.reason)

    async def _replay(self) -> None:
        with self.parts.part("the dead letters are replayed with the version before") as remarks:
            # Events on their way when the version was rolled back become dead letters a little later.
            await self.parts.until(
                self._replay_remaining,
                lambda count: count == 0 and bool(self.replayed),
                "{:,} were left".format,
            )
            remarks.append(f"{len(self.replayed):,} events")

    async def _replay_remaining(self) -> int:
        """Replay the dead letters that were not replayed; returns how many there were."""
        mesh = self.load_test.mesh
        if dead_letters := await self._dead_letters():
            pipes = (await read_registry(mesh.bootstrap, mesh.topics)).pipes
            producer = Producer(mesh.bootstrap, "hifi-tour")
            await producer.start()
            try:
                async for _ in replay(producer, mesh.topics, dead_letters, pipes):
                    pass
            finally:
                await producer.stop()
            self.replayed |= {dead_letter.summary()["event"] for dead_letter in dead_letters}
        return len(dead_letters)

    async def _refuse_scale_in(self, control: ControlPlane, release: str) -> None:
        with self.parts.part(
            f"while a release of {SERVICE} is deployed, no instance of it is removed"
        ) as remarks:
            output = self.load_test.mesh.instances["scale"][0].log
            length_before = len(output.read_text("utf-8"))
            await control.deploy(SERVICE, release, 1)

            async def refusal() -> str:
                """The reason why scale has not removed the canary, which is one instance more than the load needs."""
                lines = output.read_text("utf-8")[length_before:].splitlines()
                refusals = [line for line in lines if f"a deployment of {SERVICE} runs" in line]
                return str(orjson.loads(refusals[0])["reason"]) if refusals else ""

            remarks.append(
                await self.parts.until(refusal, bool, lambda _: "the canary starts, and is not needed")
            )

    async def _roll_back_release(self, control: ControlPlane, release: str) -> None:
        with self.parts.part("the release leaks memory and is rolled back") as remarks:

            async def newest() -> Deployment:
                """The deployment now."""
                return (await control.deployments())[SERVICE]

            deployment = await self.parts.until(
                newest,
                lambda status: status.release == release and status.state.final and not status.canary,
                lambda status: f"{status.state.value}: {status.reason}",
            )
            require(
                deployment.state is DeploymentState.ROLLED_BACK,
                f"{deployment.state.value}: {deployment.reason}",
            )

            async def instances_on_release() -> int:
                """Instances that still run the release."""
                return sum(
                    instance.spec.release == release for instance in self.load_test.mesh.instances[SERVICE]
                )

            await self.parts.until(
                instances_on_release, lambda count: count == 0, "{} instances still run it".format
            )
            remarks.append(deployment.reason)

    async def _scale_in(self, log: ActionLog) -> None:
        with self.parts.part("an instance that is not needed is removed") as remarks:
            mesh = self.load_test.mesh
            await mesh.scale(SERVICE, INSTANCES + 1, "the tour adds an instance that is not needed")

            async def instances() -> int:
                """Instances that run."""
                return len(mesh.instances[SERVICE])

            await self.parts.until(instances, lambda count: count == INSTANCES, "{} instances".format)

            async def removal() -> str:
                """The newest action on the service and its outcome, empty while it runs."""
                await log.catch_up()
                last_action = log.history.last(f"service/{SERVICE}")
                has_ended = last_action is not None and last_action.state is not ActionState.STARTED
                return (
                    f"{last_action.kind.value} {last_action.state.value}"
                    if last_action is not None and has_ended
                    else ""
                )

            outcome = await self.parts.until(removal, bool, lambda _: "the action ends")
            require(outcome == f"{ActionKind.SCALE_IN.value} {ActionState.DONE.value}", outcome)
            remarks.append(f"{SERVICE} has {INSTANCES} instances again")

    async def _settle(self, control: ControlPlane) -> None:
        with self.parts.part("the stream is stable again") as remarks:
            await self._replay_remaining()

            async def condition() -> str:
                """Verdict on the stream, with its reasons."""
                verdict = next(
                    (candidate for candidate in await control.verdicts() if candidate.scope == "stream"), None
                )
                return (
                    "no verdict"
                    if verdict is None
                    else ": ".join((verdict.condition.value, *verdict.reasons))
                )

            text = await self.parts.until(
                condition, lambda condition_text: condition_text == Condition.STABLE.value, str
            )
            remarks.append(text)

    async def _agree(
        self, sent_events: Mapping[str, SentEvent], expected: Mapping[str, Any], comparison: Comparison
    ) -> None:
        with self.parts.part("observe and the request log agree that nothing is lost or repeated") as remarks:
            plan = self.load_test.mesh.plan
            assert plan.console is not None
            observe = ObserveApi(plan.console, read_token(plan.token))
            arrived_names = {name for _, name in comparison.arrived}
            # An event that was answered with 503 may arrive, too: Kafka acknowledged it after ingest's time-out.
            written_events = {
                name: event for name, event in sent_events.items() if event.accepted or name in arrived_names
            }
            last_minute = max(event.answered_ns for event in written_events.values()) // 60_000_000_000

            async def closed() -> int:
                """The newest minute whose account is closed, in minutes since 1970."""
                return int((await asyncio.to_thread(observe.get, "/api/v1/status"))["closed_minute"] or 0)

            await self.parts.until(
                closed, lambda minute: minute >= last_minute, lambda _: "the last minute is closed", _CLOSED_S
            )
            deliveries = {name: len(expected[name]) for name in written_events}
            # observe keeps the deliveries of dead letters that were replayed apart.
            expected_counts = {
                "in": len(written_events),
                "delivered": sum(count for name, count in deliveries.items() if name not in self.replayed),
                "dead": len(self.replayed),
                "lost": 0,
                "duplicates": 0,
            }

            async def counted() -> dict[str, int]:
                """Counts of observe over all minutes; the newest ones are amended for some seconds."""
                path = "/api/v1/pipes/flights/minutes?last=60"
                minutes = (await asyncio.to_thread(observe.get, path))["minutes"]
                return {name: sum(row[name] for row in minutes) for name in expected_counts}

            await self.parts.until(
                counted,
                lambda counts: counts == expected_counts,
                lambda counts: f"observe counts {counts}, expected {expected_counts}",
                _AMENDED_S,
            )
            logged_counts = {"arrived": len(comparison.arrived), "duplicates": comparison.duplicates}
            require(
                logged_counts == {"arrived": sum(deliveries.values()), "duplicates": 0},
                f"the request log has {logged_counts}",
            )
            remarks.append(
                f"{len(written_events):,} events, {sum(deliveries.values()):,} deliveries, 0 lost, 0 repeated"
            )

    @contextlib.asynccontextmanager
    async def _load(self) -> AsyncIterator[None]:
        """Sends while the block runs, and ends when the last request is answered."""
        send_task = asyncio.create_task(self.load_test.send(self.rate))
        try:
            yield
        finally:
            while self.load_test.sender is None or not self.load_test.sender.started:
                await asyncio.sleep(_POLL_S)
            await self.load_test.sender.stop(_DRAIN_S)
            await send_task

    async def _arrived(self) -> int:
        await self.load_test.count()
        return self.load_test.progress.arrived

    async def _dead_letters(self) -> list[DeadLetter]:
        mesh = self.load_test.mesh
        return [
            letter
            async for letter in letters(mesh.bootstrap, mesh.topics, DeadLetterFilter())
            if not letter.replayed
        ]

    def _change_pipe(self, pipe: Pipe) -> None:
        plan = self.load_test.mesh.plan
        assert plan.manage is not None
        api = ManageApi(plan.manage, plan.token)
        api.change(pipe.pipe, pipe, api.pipe(pipe.pipe))


async def _status(control: ControlPlane, pipe: Pipe) -> RolloutStatus:
    return (await control.statuses())[pipe.pipe]


def _phase(status: RolloutStatus) -> str:
    return f"{status.state.value}, {status.share / 100:g} % of the keys: {status.reason}"


def _changed(pipe: Pipe, **changes: Any) -> Pipe:
    return Pipe.model_validate(pipe.model_dump(by_alias=True, exclude_defaults=True) | changes)


def _with_header(pipe: Pipe) -> Pipe:
    """The pipe with one more header in its requests."""
    body = pipe.model_dump(by_alias=True, exclude_defaults=True)
    destinations = [{**destination, "headers": {"x-tour": "2"}} for destination in body["destinations"]]
    return _changed(pipe, destinations=destinations)


def _broken(pipe: Pipe) -> Pipe:
    """The pipe with a mistake: flights whose plane is not in the list, a seventh of all, become dead letters."""
    body = pipe.model_dump(by_alias=True, exclude_defaults=True)
    planes = {**body["enrich"]["lookups"]["planes"], "miss": "dead-letter"}
    lookups = {**body["enrich"]["lookups"], "planes": planes}
    return _changed(_with_header(pipe), enrich={**body["enrich"], "lookups": lookups})
