"""Changes the topic `pipes`, each time as one action of the control plane."""

from collections.abc import Callable, Sequence
from typing import Final

from hifi.control.action import STREAM, Action, ActionHistory, ActionKind
from hifi.control.action_right import ActionRight
from hifi.control.declaration import Declaration
from hifi.control.permission import Permission, permission
from hifi.control.verdict import Verdicts
from hifi.kafka.fenced_writer import FencedWriter
from hifi.pipe.registry import PipeRegistry, RegistrySnapshot
from hifi.record.record import Record
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi.runtime.errors import Misconfigured, Retryable

ACTOR: Final = "rollout"
_EXPECTED_S: Final = 20
"""Time within which an action is over, seconds: it writes a few records."""
_READ_S: Final = 10.0

Transition = Callable[[RegistrySnapshot], Sequence[Record]]
"""The records that change the pipes in force, such as one of `hifi.pipe.rollout`."""


class PipeActions:
    """Takes the actions.

    Args:
        topic: of the pipes.
        registry: of the pipes, started.
        verdicts: of observe; kept up to date by the caller.
        right: to actions.
        writer: on the stream's Kafka, started.
    """

    def __init__(
        self, topic: str, registry: PipeRegistry, verdicts: Verdicts, right: ActionRight, writer: FencedWriter
    ) -> None:
        self._topic = topic
        self._registry = registry
        self._verdicts = verdicts
        self._right = right
        self._writer = writer

    async def take(
        self,
        declaration: Declaration,
        kind: ActionKind,
        change: str,
        reason: str,
        transition: Transition,
        forced_by: str = "",
    ) -> None:
        """Change the pipes in force, and return when this process has read the change.

        Args:
            declaration: of the pipe that is changed.
            kind: on which it depends whether the action may be taken now.
            change: for people, such as `revision 3: 1 % to 10 %`.
            reason: why, for people.
            transition: gives the records.
            forced_by: who wants the action although no verdict allows it; empty: nobody.

        Raises:
            ActionRefused: it may not be taken now; the text says what it waits for.
            Overtaken: another rollout service has started.
            Retryable: Kafka does not answer.
        """
        scope, began_us = f"pipe/{declaration.name}", now_us()
        end_us = began_us + _EXPECTED_S * MICROSECONDS
        action = Action(ACTOR, kind, scope, change, reason, began_us, end_us, forced_by=forced_by)

        async def write(_: int) -> None:
            """Write the transition, and read it back."""
            # The registry was loaded after every earlier rollout service had been overtaken, and follows since.
            try:
                records = transition(self._registry.snapshot())
            except Misconfigured as error:
                raise Retryable(str(error)) from error
            offset = await self._writer.write(self._topic, records)
            if not await self._registry.wait_for_offset(offset, _READ_S):
                raise Retryable(f"the pipes cannot be read within {_READ_S:.0f} s")

        await self._right.take(action, lambda history: self._permission(action, history), write)

    def _permission(self, action: Action, history: ActionHistory) -> Permission:
        is_published = self._registry.get(action.scope.removeprefix("pipe/")) is not None
        at_us = now_us()
        condition = self._verdicts.condition((STREAM, action.scope) if is_published else (STREAM,), at_us)
        return permission(
            action.kind, action.scope, condition, history.running, at_us, forced=bool(action.forced_by)
        )
