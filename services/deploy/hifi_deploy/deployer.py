"""Replaces the instances of services by the releases that people want: a canary beside its peers, then batches.

The recorded deployment and the releases of the instances decide the next action, so an instance of deploy that starts
after another one was killed continues its work.
"""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hifi.control.action import STREAM, Action, ActionHistory, ActionKind
from hifi.control.action_right import ActionRefused, ActionRight
from hifi.control.permission import Permission, permission
from hifi.control.releases.deployment import Deployment, DeploymentState, unseen
from hifi.control.releases.desired_release import DEPLOYABLE, DesiredRelease
from hifi.control.verdict import Condition, Verdicts
from hifi.kafka.fenced_writer import FencedWriter
from hifi.runtime import log
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi_deploy.desired_releases import DesiredReleases
from hifi_deploy.driver import Driver
from hifi_deploy.instance_reading import InstanceReading
from hifi_deploy.judge import Judge, JudgeRules, ReleaseComparison
from hifi_infra.mesh.executor_client import ChangeRefused

ACTOR: Final = "deploy"
_EXPECTED_S: Final = 90
"""Time within which an action is over, seconds: an instance drains for up to 55 and the next one starts."""

logger = log.get(__name__)

Change = Callable[[int], Awaitable[None]]
"""Makes a change with the fencing token of its action."""


@dataclass(slots=True)
class _Trial:
    """The judgement of the deployment that runs. It is lost when the service ends: a new one begins then."""

    number: int
    judge: Judge
    unstable_since_us: int | None = None


class Deployer:
    """Drives the releases of all services. Call `reconcile` about once a second.

    Args:
        topic: of the deployments.
        rules: how a release is judged.
        unstable_s: time for which the service may be unstable before the release is rolled back, seconds.
        driver: of the instances.
        desired: kept up to date by the caller.
        verdicts: of observe; kept up to date by the caller.
        right: to actions.
        writer: started.
    """

    def __init__(
        self,
        *,
        topic: str,
        rules: JudgeRules,
        unstable_s: float,
        driver: Driver,
        desired: DesiredReleases,
        verdicts: Verdicts,
        right: ActionRight,
        writer: FencedWriter,
    ) -> None:
        self._topic = topic
        self._rules = rules
        self._unstable_us = unstable_s * MICROSECONDS
        self._driver = driver
        self._desired = desired
        self._verdicts = verdicts
        self._right = right
        self._writer = writer
        self._trials: dict[str, _Trial] = {}
        self._defaults: dict[str, str] = {}
        """Service to the release of new instances, as far as this process has set it."""

    async def reconcile(self) -> bool:
        """Look at every service once, and do what can be done now.

        Returns:
            Whether work remains.

        Raises:
            Overtaken: another deployer has started.
            Retryable: Kafka or the driver does not answer.
        """
        work_remains = False
        for desired in sorted(self._desired.releases.values(), key=lambda release: release.number):
            try:
                work_remains |= await self._advance(desired)
            except ActionRefused as error:
                work_remains = True
                status = self._desired.deployments[desired.service]
                if not status.state.final:
                    await self._write_status(replace(status, reason=str(error)))
            except ChangeRefused as error:
                work_remains = True
                status = self._desired.deployments[desired.service]
                await self._write_status(replace(status, reason=str(error)))
        return work_remains

    async def _advance(self, desired: DesiredRelease) -> bool:
        """Do what can be done for a service; returns whether work remains."""
        status = self._desired.deployments.get(desired.service)
        if status is None or status.number < desired.number:
            if status is not None and not status.state.final:
                status = await self._roll_back(status, f"{desired.author} deploys {desired.release} instead")
            # What the release before needs may be gone; that must not hold up the one that replaces it.
            with contextlib.suppress(ChangeRefused):
                if status is not None and not await self._settle(status):
                    return True
            status = await self._write_status(replace(unseen(desired, status), reason="it is about to begin"))
        if desired.service not in DEPLOYABLE and not status.state.final:
            reason = (
                f"{desired.service} cannot be deployed with a canary: name one of {', '.join(DEPLOYABLE)}"
            )
            status = await self._write_status(replace(status, state=DeploymentState.REFUSED, reason=reason))
        if status.state.final:
            return not await self._settle(status)
        await self._continue(desired, status)
        return True

    async def _continue(self, desired: DesiredRelease, status: Deployment) -> None:
        """Judge the deployment that runs, and take its next action if there is one to take now."""
        wishes = self._desired.wishes(desired.service, desired.number)
        status = await self._write_status(replace(status, paused_by=wishes.paused_by or ""))
        instances = await self._driver.read(desired.service)
        old_instances = [instance for instance in instances if instance.release != desired.release]
        if wishes.aborted_by is not None:
            await self._settle(await self._roll_back(status, f"aborted by {wishes.aborted_by}"))
        elif status.state is DeploymentState.WAITING and not old_instances:
            reason = (
                "every instance runs it" if instances else "the service has no instance to compare it with"
            )
            state = DeploymentState.IN_FORCE if instances else DeploymentState.WAITING
            await self._write_status(replace(status, state=state, reason=reason))
        elif status.state is DeploymentState.WAITING or not any(
            instance.name == status.canary and instance.release == desired.release for instance in instances
        ):
            if not status.paused_by or self._forced_by(status):
                await self._start_canary(status, instances)
        else:
            await self._judge(desired, status, instances, old_instances)

    async def _start_canary(self, status: Deployment, instances: Sequence[InstanceReading]) -> None:
        used_names = {instance.name for instance in instances}
        free_name = next(
            name for number in range(1, 1000) if (name := f"{status.service}-{number}") not in used_names
        )
        canary_status = replace(
            status,
            state=DeploymentState.CANARY,
            canary=status.canary or free_name,
            reason="the canary starts",
            stage=max(1, status.stage),
        )

        async def start(token: int) -> None:
            """Record the name first, so that an instance that takes over knows which one is the canary."""
            await self._write_status(canary_status)
            await self._driver.set_release(canary_status.canary, status.release, "canary", token)

        try:
            await self._change(
                status,
                ActionKind.DEPLOY,
                f"canary {canary_status.canary}: {status.release}",
                f"wanted by {status.author}",
                start,
            )
        except ChangeRefused as error:
            self._trials.pop(status.service, None)
            await self._write_status(
                replace(status, state=DeploymentState.REFUSED, canary="", reason=str(error))
            )

    async def _judge(
        self,
        desired: DesiredRelease,
        status: Deployment,
        instances: Sequence[InstanceReading],
        old_instances: Sequence[InstanceReading],
    ) -> None:
        trial = self._trials.get(desired.service)
        if trial is None or trial.number != desired.number:
            trial = self._trials[desired.service] = _Trial(
                desired.number, Judge(self._rules, desired.release)
            )
        judgement = trial.judge.look(instances, monotonic_s())
        is_ready = all(instance.ready for instance in instances if instance.release == desired.release)
        forced_by = self._forced_by(status) if is_ready else ""
        is_unstable = self._unstable_too_long(desired.service, trial)
        if judgement.comparison is ReleaseComparison.WORSE or is_unstable:
            reason = judgement.reason if not is_unstable else "the service was unstable for too long"
            await self._settle(await self._roll_back(status, f"{reason}; {trial.judge.damage_text}"))
        elif not forced_by and (
            judgement.comparison is ReleaseComparison.TOO_LITTLE or (old_instances and status.paused_by)
        ):
            reason = f"paused by {status.paused_by}" if status.paused_by else judgement.reason
            await self._write_status(replace(status, reason=reason))
        elif old_instances:
            reason = f"forced by {forced_by}" if forced_by else judgement.reason
            await self._replace(status, trial.judge, old_instances[: desired.batch], reason)
        else:
            reason = f"{judgement.comparison.value}: {judgement.reason}"
            reason = f"forced by {forced_by}" if forced_by else reason
            await self._settle(
                await self._write_status(replace(status, state=DeploymentState.IN_FORCE, reason=reason))
            )

    async def _replace(
        self, status: Deployment, judge: Judge, batch: Sequence[InstanceReading], reason: str
    ) -> None:
        """Replace instances of the release before, one action each. What is refused is tried again at once."""
        status = await self._write_status(replace(status, state=DeploymentState.ROLLING))
        try:
            for instance in batch:
                await self._change(
                    status,
                    ActionKind.DEPLOY,
                    f"{instance.name}: {instance.release} to {status.release}",
                    reason,
                    lambda token, name=instance.name: self._driver.set_release(  # type: ignore[misc]
                        name, status.release, reason, token
                    ),
                )
                judge.start_period()
            await self._write_status(replace(status, stage=status.stage + 1))
        except ChangeRefused as error:
            await self._settle(await self._roll_back(status, str(error)))

    async def _roll_back(self, status: Deployment, reason: str) -> Deployment:
        """Roll a deployment back. The reason is on record first: then nobody goes on with it."""
        logger.warning("rolled-back", service=status.service, release=status.release, reason=reason)
        self._trials.pop(status.service, None)
        return await self._write_status(replace(status, state=DeploymentState.ROLLED_BACK, reason=reason))

    async def _settle(self, status: Deployment) -> bool:
        """Bring the instances to the release in which a deployment has ended; False: work remains."""
        service, release = status.service, status.settled
        kind = ActionKind.DEPLOY if status.state is DeploymentState.IN_FORCE else ActionKind.ROLL_BACK
        instances = await self._driver.read(service)
        if status.canary:
            canary = status.canary
            if any(instance.name == canary for instance in instances):
                await self._change(
                    status, kind, f"canary {canary} ends", status.reason,
                    lambda token: self._driver.remove(canary, status.reason, token),
                )  # fmt: skip
            await self._write_status(replace(status, canary=""))
            return False
        for instance in instances:
            if instance.release == release:
                continue
            if any(not peer.ready for peer in instances if peer.release == release):
                return False  # one at a time, so that the service goes on
            await self._change(
                status, kind, f"{instance.name}: {instance.release} to {release}", status.reason,
                lambda token, name=instance.name: self._driver.set_release(name, release, status.reason, token),  # type: ignore[misc]
            )  # fmt: skip
            return False
        if self._defaults.get(service) != release:
            await self._change(
                status, kind, f"new instances run {release}", status.reason,
                lambda token: self._driver.set_default_release(service, release, token),
            )  # fmt: skip
            self._defaults[service] = release
        return True

    async def _change(
        self, status: Deployment, kind: ActionKind, summary: str, reason: str, change: Change
    ) -> None:
        """Change instances as one action of the control plane.

        Raises:
            ActionRefused: it may not be done now; the text says what it waits for.
            ChangeRefused: the driver cannot do it.
            Retryable: Kafka or the driver does not answer.
        """
        scope, began_us = f"service/{status.service}", now_us()
        end_us = began_us + _EXPECTED_S * MICROSECONDS
        forced_by = self._forced_by(status) if kind is ActionKind.DEPLOY else ""
        action = Action(ACTOR, kind, scope, summary, reason, began_us, end_us, forced_by=forced_by)
        await self._right.take(action, lambda history: self._allowed(action, history), change)

    def _allowed(self, action: Action, history: ActionHistory) -> Permission:
        at_us = now_us()
        condition = self._verdicts.condition((STREAM, action.scope), at_us)
        # An action of a deployer that has not ended is one of an earlier process: the writer has overtaken it, and the
        # executor refuses its token once this action has begun.
        foreign_actions = [action for action in history.running if action.actor != ACTOR]
        is_forced = bool(action.forced_by)
        return permission(action.kind, action.scope, condition, foreign_actions, at_us, forced=is_forced)

    def _forced_by(self, status: Deployment) -> str:
        """The person who wants the next action although it would wait; empty: nobody."""
        return self._desired.wishes(status.service, status.number).forced.get(status.stage, "")

    def _unstable_too_long(self, service: str, trial: _Trial) -> bool:
        at_us = now_us()
        if self._verdicts.condition((f"service/{service}",), at_us) is not Condition.UNSTABLE:
            trial.unstable_since_us = None
            return False
        if trial.unstable_since_us is None:
            trial.unstable_since_us = at_us
        return at_us - trial.unstable_since_us > self._unstable_us

    async def _write_status(self, status: Deployment) -> Deployment:
        """Write the deployment where it has changed."""
        previous_status, at_us = self._desired.deployments.get(status.service), now_us()
        same_state = previous_status is not None and (previous_status.number, previous_status.state) == (
            status.number,
            status.state,
        )
        status = replace(
            status, since_us=previous_status.since_us if previous_status is not None and same_state else at_us
        )
        if status != previous_status:
            await self._writer.write(self._topic, [status.record()])
            self._desired.deployments[status.service] = status
            logger.info("deployment", **status.json())
        return status
