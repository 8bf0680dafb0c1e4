"""Requests of commands to the control plane: declare pipes, read their progress, and stop or hasten a rollout."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from hifi.control import rollout_status, verdict
from hifi.control.declaration import Declaration, Declarations, Origin, undeclared
from hifi.control.declaration_log import DeclarationLog
from hifi.control.releases import deployment, desired_release
from hifi.control.releases.deployment import Deployment, deployment_request, newest_deployments
from hifi.control.releases.desired_release import DesiredRelease
from hifi.control.request import RequestKind, request_about
from hifi.control.rollout_status import RolloutStatus, newest_statuses
from hifi.control.verdict import Condition, Verdict
from hifi.kafka.topic_follower import Take
from hifi.kafka.topics import ControlTopics
from hifi.kafka.visit import answering, read_topics, write_records
from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision
from hifi.record.record import Record
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi.runtime.errors import Misconfigured
from hifi_cli.mesh_state.audited_command import audited_command, author

_CLIENT: Final = "hifi-cli"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The control plane of a mesh.

    Attributes:
        kafka: bootstrap servers of its Kafka.
        topics: its topics.
    """

    kafka: str
    topics: ControlTopics

    async def declare(
        self,
        pipes: Mapping[str, Pipe | None],
        in_force: Mapping[str, PipeRevision],
        replaced_declarations: Mapping[str, Declaration] | None = None,
    ) -> None:
        """Declare pipes; None deletes one.

        Args:
            pipes: name to the pipe.
            in_force: name to what is in force, for pipes without a declaration: one that is paused stays so.
            replaced_declarations: pipe to the one that this changes, as `declared` returned it; None: the newest ones.

        Raises:
            Misconfigured: somebody changed a pipe in the meantime, its newest declaration cannot be read, or Kafka does
                not answer.
        """
        actor, time_us = author(), now_us()
        async with self._answering(), self._log() as log:
            declared = log.declared
            declared.require_readable(sorted(name for name, pipe in pipes.items() if pipe is not None))
            changed_names = (
                []
                if replaced_declarations is None
                else [name for name in pipes if declared.newest.get(name) != replaced_declarations.get(name)]
            )
            if not changed_names:
                declarations = [
                    Declaration(
                        name,
                        pipe,
                        actor,
                        time_us,
                        declared.number(name),
                        Origin.FILE,
                        declared.paused(name, in_force.get(name)),
                    )
                    for name, pipe in pipes.items()
                ]
                async with self._audited("declare by file", self._numbers(declared, pipes)) as values_after:
                    appended_declarations = await log.append(declarations)
                    values_after |= {
                        f"pipe/{declaration.name}": declaration.number
                        for declaration in appended_declarations
                    }
                names = {declaration.name for declaration in appended_declarations}
                changed_names = [name for name in pipes if name not in names]
        if changed_names:
            changes_of_others = "; ".join(
                f"{declared.newest[name].author} changed {name}" for name in sorted(changed_names)
            )
            raise Misconfigured(
                f"{changes_of_others} in the meantime; run the command again to see what is declared now"
            )

    async def set_paused(self, name: str, current: PipeRevision | None, *, paused: bool) -> None:
        """Declare that a pipe takes no new events, or takes them again.

        Args:
            name: of the pipe.
            current: what is in force, for a pipe without a declaration; None: nothing.
            paused: whether it takes no new events.

        Raises:
            Misconfigured: there is no such pipe, somebody changed it in the meantime, or Kafka does not answer.
        """
        async with self._answering(), self._log() as log:
            log.declared.require_readable([name])
            before = log.declared.newest.get(name)
            if before is None and current is not None:
                before = undeclared(current)
            if before is None or before.pipe is None:
                raise Misconfigured(f"there is no pipe {name}; `hifi pipes` lists those that are in force")
            if before.paused == paused:
                return
            action = "pause the pipe" if paused else "resume the pipe"
            async with self._audited(action, self._numbers(log.declared, [name])) as values_after:
                appended_declarations = await log.append(
                    [before.with_pause(author(), now_us(), paused=paused)]
                )
                if not appended_declarations:
                    actor = log.declared.newest[name].author
                    raise Misconfigured(f"{actor} changed {name} in the meantime; run the command again")
                values_after[f"pipe/{name}"] = appended_declarations[0].number

    async def declared(self) -> Mapping[str, Declaration]:
        """Pipe to its newest declaration.

        Raises:
            Misconfigured: Kafka does not answer.
        """
        async with self._answering(), self._log() as log:
            return dict(log.declared.newest)

    async def statuses(self) -> Mapping[str, RolloutStatus]:
        """Pipe to how far its newest declaration is; `waiting` where the rollout service has not seen it yet.

        Raises:
            Misconfigured: Kafka does not answer.
        """
        statuses: dict[str, RolloutStatus] = {}

        def take(_: bytes | None, value: bytes | None, __: int) -> None:
            """Keep the newest status of each pipe."""
            status = rollout_status.decode(value)
            statuses[status.pipe] = status

        declared = await self.declared()
        await self._read(self.topics.rollouts, take)
        return newest_statuses(declared, statuses)

    async def verdicts(self) -> list[Verdict]:
        """Observe's verdicts, by scope; those that are too old to count are `unknown`.

        Raises:
            Misconfigured: Kafka does not answer.
        """
        newest_verdicts: dict[str, Verdict] = {}

        def take(_: bytes | None, value: bytes | None, __: int) -> None:
            """Keep the newest verdict on each scope."""
            verdict_read = verdict.decode(value or b"")
            newest_verdicts[verdict_read.scope] = verdict_read

        await self._read(self.topics.health, take)
        oldest_us = now_us() - verdict.VALID_S * MICROSECONDS
        return [
            verdict_read
            if verdict_read.at_us >= oldest_us
            else replace(verdict_read, condition=Condition.UNKNOWN, reasons=("observe gives no verdict",))
            for _, verdict_read in sorted(newest_verdicts.items())
        ]

    async def ask(self, pipe: str, kind: RequestKind, declaration: int | None = None) -> RolloutStatus:
        """Ask something of the rollout service about the newest declaration of a pipe; returns its status before.

        Args:
            pipe: name.
            kind: what is asked for.
            declaration: number of the declaration that is meant; None: whichever is the newest one.

        Raises:
            Misconfigured: the pipe has no rollout that could do this, another declaration is meant, or Kafka does not
                answer.
        """
        status = (await self.statuses()).get(pipe)
        if status is None:
            raise Misconfigured(f"no pipe {pipe} was declared; `hifi rollout status` lists those that were")
        if declaration not in (None, status.declaration):
            raise Misconfigured(
                f"the newest declaration of {pipe} is {status.declaration}, by {status.author}: nothing was asked for"
            )
        request = request_about(status, kind, author(), now_us())
        subject = f"pipe/{pipe}"
        async with self._audited(f"{kind.value} the rollout", {subject: status.declaration}) as values_after:
            await self._write(self.topics.requests, [request.record()])
            values_after[subject] = request.number
        return status

    async def deploy(self, service: str, release: str, batch: int) -> None:
        """Say which release a service should run.

        Raises:
            Misconfigured: Kafka does not answer.
        """
        new_release = DesiredRelease(service, release, author(), now_us(), batch)
        subject = f"service/{service}"
        current_deployment = (await self.deployments()).get(service)
        async with self._audited(
            "deploy", {subject: current_deployment and current_deployment.release}
        ) as values_after:
            await self._write(self.topics.releases, [new_release.record()])
            values_after[subject] = release

    async def deployments(self) -> Mapping[str, Deployment]:
        """Service to how far its newest desired release is.

        Raises:
            Misconfigured: Kafka does not answer.
        """
        desired_releases: dict[str, DesiredRelease] = {}
        deployments: dict[str, Deployment] = {}

        def take_release(_: bytes | None, value: bytes | None, offset: int) -> None:
            """Keep the newest desired release of each service."""
            release = desired_release.decode(value, offset)
            desired_releases[release.service] = release

        def take_deployment(_: bytes | None, value: bytes | None, __: int) -> None:
            """Keep the newest deployment of each service."""
            status = deployment.decode(value)
            deployments[status.service] = status

        await self._read(self.topics.releases, take_release)
        await self._read(self.topics.deployments, take_deployment)
        return newest_deployments(desired_releases, deployments)

    async def ask_deployer(self, service: str, kind: RequestKind) -> Deployment:
        """Ask something of the deployer about the newest release of a service; returns the deployment before.

        Raises:
            Misconfigured: no deployment of the service runs, or Kafka does not answer.
        """
        status = (await self.deployments()).get(service)
        if status is None:
            raise Misconfigured(
                f"no release of {service} was deployed; `hifi deploy status` lists those that were"
            )
        subject = f"service/{service}"
        request = deployment_request(status, kind, author(), now_us())
        async with self._audited(
            f"{kind.value} the deployment", {subject: status.state.value}
        ) as values_after:
            await self._write(self.topics.requests, [request.record()])
            values_after[subject] = f"asked to {kind.value}"
        return status

    def _audited(self, action: str, before: Mapping[str, Any]) -> AbstractAsyncContextManager[dict[str, Any]]:
        return audited_command(self.kafka, self.topics, action, before)

    def _numbers(self, declared: Declarations, names: Iterable[str]) -> dict[str, int | None]:
        """Subject of each pipe to the number of its newest declaration; None: there is none."""
        return {
            f"pipe/{name}": newest.number if (newest := declared.newest.get(name)) else None for name in names
        }

    @contextlib.asynccontextmanager
    async def _log(self) -> AsyncIterator[DeclarationLog]:
        log = DeclarationLog(self.kafka, self.topics.declared, _CLIENT)
        try:
            await log.start()
            yield log
        finally:
            await log.stop()

    async def _write(self, topic: str, records: Sequence[Record]) -> None:
        async with self._answering():
            await write_records(self.kafka, _CLIENT, (topic, records))

    async def _read(self, topic: str, on_record: Take) -> None:
        async with self._answering():
            await read_topics(self.kafka, _CLIENT, {topic: on_record})

    def _answering(self) -> AbstractAsyncContextManager[None]:
        return answering(
            f"the control plane's Kafka at {self.kafka} does not answer; is the mesh running, and is "
            f"{self.topics.control} its control plane?",
            Misconfigured,
        )
