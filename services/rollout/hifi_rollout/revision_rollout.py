"""Rolls a changed pipe out: the next revision gets a rising share of the pipe's keys, or goes back."""

from hifi.control.action import ActionKind
from hifi.control.declaration import Declaration
from hifi.control.rollout_status import RolloutState
from hifi.pipe import rollout
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import WHOLE, PipeRevision, Rollout
from hifi.runtime import log
from hifi_rollout.admission import PipeAdmission
from hifi_rollout.pipe_actions import PipeActions
from hifi_rollout.ramp import Move, RampDecision, RampRules
from hifi_rollout.ramps import Ramps
from hifi_rollout.status_writer import StatusWriter

logger = log.get(__name__)


class RevisionRollout:
    """Begins, advances and ends the rollouts of changed pipes.

    Args:
        rules: how a new revision gets its share.
        registry: of the pipes, started.
        admission: decides whether a declaration may be put into force.
        ramps: decide when a share rises.
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

    async def begin(self, declaration: Declaration, pipe: Pipe, current: PipeRevision) -> None:
        """Give a declared pipe the first share of the keys.

        Raises:
            ActionRefused: it may not be done now; the text says what it waits for.
        """
        if not await self._admission.admit(declaration, pipe):
            return
        share = self._rules.shares[0]
        await self._actions.take(
            declaration,
            ActionKind.ROLLOUT,
            f"a revision after {current.number}: 0 % to {rollout.percent(share)}",
            f"declared by {declaration.author}",
            lambda snapshot: rollout.begin(snapshot, pipe, share),
            self._admission.forced_by(declaration),
        )
        published_pipe = self._registry.get(declaration.name)
        revision = published_pipe.rollout.next.number if published_pipe and published_pipe.rollout else None
        await self._statuses.write(declaration, RolloutState.RAMPING, revision, share, "the phase has begun")

    async def advance(
        self, declaration: Declaration, current: PipeRevision, current_rollout: Rollout
    ) -> None:
        """Take the next action of a rollout if there is one to take now.

        Args:
            declaration: that is rolled out.
            current: the pipe in force.
            current_rollout: its rollout, which introduces the declared pipe.

        Raises:
            ActionRefused: it may not be taken now; the text says what it waits for.
        """
        revision, share = current_rollout.next.number, current_rollout.share
        decision = self._ramps.decide(declaration, revision, current.number, share)
        if decision.move is Move.ROLL_BACK:
            await self.roll_back(declaration, current, decision.reason)
        elif decision.move is Move.WAIT:
            state = self._ramps.waiting_state(declaration)
            await self._statuses.write(declaration, state, revision, share, decision.reason)
        elif decision.move is Move.PROMOTE:
            await self._promote(declaration, revision, decision)
        else:
            await self._raise_share(declaration, current_rollout, decision)

    async def roll_back(self, declaration: Declaration, current: PipeRevision, reason: str) -> None:
        """End the rollout that runs. The reason is on record first: then nobody begins it again."""
        if current.rollout is None:
            return
        revision = current.rollout.next.number
        if introduces(current, declaration):
            await self._statuses.write(declaration, RolloutState.ROLLED_BACK, revision, 0, reason)
        logger.warning("rolled-back", pipe=declaration.name, revision=revision, reason=reason)
        await self._actions.take(
            declaration,
            ActionKind.ROLL_BACK,
            f"revision {revision}: {rollout.percent(current.rollout.share)} to 0 %",
            reason,
            lambda snapshot: rollout.abort(snapshot, declaration.name),
        )
        self._ramps.end(declaration.name)

    async def _promote(self, declaration: Declaration, revision: int, decision: RampDecision) -> None:
        await self._actions.take(
            declaration,
            ActionKind.ROLLOUT,
            f"revision {revision}: promoted",
            decision.reason,
            lambda snapshot: rollout.promote(snapshot, declaration.name),
            decision.forced_by,
        )
        await self._statuses.write(declaration, RolloutState.IN_FORCE, revision, WHOLE, decision.reason)

    async def _raise_share(
        self, declaration: Declaration, current_rollout: Rollout, decision: RampDecision
    ) -> None:
        revision, share = current_rollout.next.number, decision.share
        await self._actions.take(
            declaration,
            ActionKind.ROLLOUT,
            f"revision {revision}: {rollout.percent(current_rollout.share)} to {rollout.percent(share)}",
            decision.reason,
            lambda snapshot: rollout.change_share(snapshot, declaration.name, share),
            decision.forced_by,
        )
        self._ramps.begin_phase(declaration.name, share)
        await self._statuses.write(declaration, RolloutState.RAMPING, revision, share, "the phase has begun")


def introduces(current: PipeRevision, declaration: Declaration) -> bool:
    """Whether the rollout that runs introduces the declared pipe."""
    return current.rollout is not None and current.rollout.next.pipe == declaration.pipe
