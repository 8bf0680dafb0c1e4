"""Scales a mesh by the rules of the control plane: each change is an action, and scale-in waits until all is stable."""

from collections.abc import Mapping
from typing import Final

from hifi.control.action import STREAM, Action, ActionHistory, ActionKind
from hifi.control.action_right import ActionRight
from hifi.control.permission import Permission, permission
from hifi.control.verdict import Verdicts
from hifi.runtime import log
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi.runtime.errors import Retryable
from hifi_infra.mesh.executed_instance import ExecutedInstance
from hifi_infra.mesh.executor_client import MeshExecutor
from hifi_infra.mesh.lane_occupancy import SERVICE, lane_occupancy

ACTOR: Final = "scale"
_EXPECTED_S: Final = 90
"""Time within which a change is over: starting takes seconds, draining up to 55."""

logger = log.get(__name__)


class ScaledMesh:
    """The mesh that `hifi_infra.autoscaler` scales. Call `refresh` before each of its rounds.

    Args:
        executor: of the mesh.
        right: to actions.
        verdicts: of observe; kept up to date by the caller.
    """

    def __init__(self, executor: MeshExecutor, right: ActionRight, verdicts: Verdicts) -> None:
        self.instances: Mapping[str, list[ExecutedInstance]] = {}
        self._executor = executor
        self._right = right
        self._verdicts = verdicts

    async def refresh(self) -> None:
        """Ask for the instances.

        Raises:
            Retryable: the executor does not answer, or does not know the CPU of an instance: it may not be idle.
            Misconfigured: it refuses the secret.
        """
        instances = await self._executor.instances()
        unmeasured_names = [
            instance.name for group in instances.values() for instance in group if not instance.measured
        ]
        if unmeasured_names:
            raise Retryable(f"the CPU of instances is unknown: {', '.join(sorted(unmeasured_names))}")
        self.instances = instances

    async def read_occupancy(self) -> Mapping[str, float]:
        """As `hifi_infra.mesh.lane_occupancy.lane_occupancy`, of all instances."""
        return await lane_occupancy(
            (instance.host, instance.port) for instance in self.instances.get(SERVICE, [])
        )

    async def scale(self, service: str, count: int, reason: str) -> None:
        """Change the number of instances, as an action of its own.

        Raises:
            ActionRefused: it may not be done now; the text says what it waits for.
            Retryable: Kafka or the executor does not answer, or refuses.
        """
        old_count, at_us = len(self.instances.get(service, [])), now_us()
        kind = ActionKind.SCALE_OUT if count > old_count else ActionKind.SCALE_IN
        action = Action(
            ACTOR,
            kind,
            f"service/{service}",
            f"{service}: {old_count} to {count} instances",
            reason,
            at_us,
            at_us + _EXPECTED_S * MICROSECONDS,
        )
        await self._right.take(
            action,
            lambda history: self._allowed(action, history),
            lambda token: self._executor.scale(service, count, reason, token),
        )

    def _allowed(self, action: Action, history: ActionHistory) -> Permission:
        at_us = now_us()
        condition = self._verdicts.condition((STREAM, action.scope), at_us)
        return permission(action.kind, action.scope, condition, history.running, at_us)
