"""Puts new pipes into force: the rate that a new pipe may take rises in phases."""

from hifi.control.action import ActionKind
from hifi.control.declaration import Declaration
from hifi.control.rollout_status import RolloutState
from hifi.pipe import rollout
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import WHOLE, PipeRevision, RateCap
from hifi.runtime import log
from hifi_rollout.admission import PipeAdmission
from hifi_rollout.pipe_actions import PipeActions
from hifi_rollout.ramp import Move, RampRules
from hifi_rollout.ramps import Ramps
from hifi_rollout.status_writer import StatusWriter

logger = log.get(__name__)


class NewPipeRamp:
    """Raises the cap of each new pipe until only its quota limits it.

    Args:
        rules: how a new pipe gets its rate.
        registry: of the pipes, started.
        admission: decides whether a declaration may be put into force.
        ramps: decide when a cap rises.
        actions: change the pipes.
        statuses: where it is written how far a declaration is.
    """

    def __init__(
        self,
        rules: RampRules,
        registry: PipeRegistry,
        admission: PipeAdmission,
        ramps: Ramps,
        actions: PipeActions,
        statuses: StatusWriter,
    ) -> None:
        self._rules = rules
        self._registry = registry
        self._admission = admission
        self._ramps = ramps
        self._actions = actions
        self._statuses = statuses

    async def advance(self, declaration: Declaration, pipe: Pipe, current: PipeRevision | None) -> None:
        """Put a pipe into force that is new, or raise its cap if that may be done now.

        Args:
            declaration: to put into force.
            pipe: as it is declared.
            current: the pipe in force, which has a cap; None: there is none.

        Raises:
            ActionRefused: nothing may be done now; the text says what it waits for.
        """
        if current is not None and current.cap is not None and current.pipe == pipe:
            await self._raise_cap(declaration, current, current.cap)
        else:
            await self._begin(declaration, pipe)

    async def lower_cap(self, declaration: Declaration, current: PipeRevision, reason: str) -> None:
        """Give a new pipe that was rolled back the rate of the first phase again, unless it has it."""
        first_cap = self._rules.first_cap(current.pipe)
        if current.cap is None or first_cap is None or current.cap.share <= first_cap.share:
            return
        await self._change_cap(declaration, ActionKind.ROLL_BACK, first_cap, reason)
        self._ramps.end(declaration.name)

    async def _begin(self, declaration: Declaration, pipe: Pipe) -> None:
        if not await self._admission.admit(declaration, pipe):
            return
        cap = self._rules.first_cap(pipe)
        await self._actions.take(
            declaration,
            ActionKind.ROLLOUT,
            f"a new pipe: {rollout.cap_text(cap)}",
            "declared",
            lambda snapshot: rollout.put_at_once(snapshot, pipe, paused=declaration.paused, cap=cap),
            self._admission.forced_by(declaration),
        )
        current = self._registry.get(declaration.name)
        revision = None if current is None else current.number
        if cap is None:
            await self._statuses.write(declaration, RolloutState.IN_FORCE, revision, WHOLE, "a new pipe")
        else:
            await self._statuses.write(
                declaration, RolloutState.RAMPING, revision, cap.share, "the phase has begun"
            )

    async def _raise_cap(self, declaration: Declaration, current: PipeRevision, cap: RateCap) -> None:
        revision = current.number
        decision = self._ramps.decide(declaration, revision, None, cap.share)
        reason = decision.reason
        if decision.move is Move.ROLL_BACK:
            await self._statuses.write(declaration, RolloutState.ROLLED_BACK, revision, cap.share, reason)
            logger.warning("rolled-back", pipe=declaration.name, revision=revision, reason=reason)
            await self.lower_cap(declaration, current, reason)
            return
        if decision.move is Move.WAIT:
            state = self._ramps.waiting_state(declaration)
            await self._statuses.write(declaration, state, revision, cap.share, reason)
            return
        higher_cap = None if decision.move is Move.PROMOTE else self._rules.cap(current.pipe, decision.share)
        await self._change_cap(declaration, ActionKind.ROLLOUT, higher_cap, reason, decision.forced_by)
        if higher_cap is None:
            await self._statuses.write(declaration, RolloutState.IN_FORCE, revision, WHOLE, reason)
        else:
            self._ramps.begin_phase(declaration.name, higher_cap.share)
            await self._statuses.write(
                declaration, RolloutState.RAMPING, revision, higher_cap.share, "the phase has begun"
            )

    async def _change_cap(
        self,
        declaration: Declaration,
        kind: ActionKind,
        cap: RateCap | None,
        reason: str,
        forced_by: str = "",
    ) -> None:
        await self._actions.take(
            declaration,
            kind,
            f"the new pipe: {rollout.cap_text(cap)}",
            reason,
            lambda snapshot: rollout.change_cap(snapshot, declaration.name, cap),
            forced_by,
        )
