"""Compares the declared pipes with those in force, and takes the next action of each that differs."""

from hifi.control.action import ActionKind
from hifi.control.action_right import ActionRefused, ActionRight
from hifi.control.declaration import Declaration
from hifi.control.rollout_status import RolloutState
from hifi.control.verdict import Verdicts
from hifi.kafka.fenced_writer import FencedWriter
from hifi.pipe import rollout
from hifi.pipe.registry import HELD_ADVICE, PipeRegistry
from hifi.pipe.revision import WHOLE, PipeRevision
from hifi.runtime.errors import Retryable
from hifi_rollout.admission import PipeAdmission
from hifi_rollout.declared_pipes import DeclaredPipes
from hifi_rollout.new_pipe_ramp import NewPipeRamp
from hifi_rollout.pipe_actions import PipeActions
from hifi_rollout.ramp import RampRules
from hifi_rollout.ramps import Ramps
from hifi_rollout.revision_rollout import RevisionRollout, introduces
from hifi_rollout.status_writer import StatusWriter


class PipeReconciler:
    """Puts the declared pipes of one stream into force. Call `reconcile` again and again.

    Args:
        pipes_topic: of the pipes.
        rollouts_topic: of the statuses.
        rules: how a new revision gets its share.
        registry: of the pipes, started.
        declared: kept up to date by the caller.
        verdicts: of observe; kept up to date by the caller.
        right: to actions.
        pipes_writer: on the stream's Kafka, started.
        rollouts_writer: on the control plane's, started.
    """

    def __init__(
        self,
        *,
        pipes_topic: str,
        rollouts_topic: str,
        rules: RampRules,
        registry: PipeRegistry,
        declared: DeclaredPipes,
        verdicts: Verdicts,
        right: ActionRight,
        pipes_writer: FencedWriter,
        rollouts_writer: FencedWriter,
    ) -> None:
        self._registry = registry
        self._declared = declared
        self._statuses = StatusWriter(rollouts_topic, declared, rollouts_writer)
        self._actions = PipeActions(pipes_topic, registry, verdicts, right, pipes_writer)
        self._ramps = Ramps(rules, declared, verdicts)
        self._admission = PipeAdmission(rules.rating, registry, declared, self._statuses)
        collaborators = registry, self._admission, self._ramps, self._actions, self._statuses
        self._new_pipes = NewPipeRamp(rules, *collaborators)
        self._revisions = RevisionRollout(rules, *collaborators)

    async def reconcile(self) -> None:
        """Look at every declared pipe once, and do what can be done now. A pipe whose action fails holds up no other.

        Raises:
            Overtaken: another rollout service has started.
            Retryable: the first failure of an action; or no status can be written, and pipes after that are left out.
        """
        failures: list[Retryable] = []
        declarations = self._declared.declarations.values()
        for declaration in sorted(declarations, key=lambda declaration: declaration.number):
            try:
                self._require_readable(declaration)
                await self._follow_pause(declaration)
                await self._advance(declaration)
            except ActionRefused as error:
                await self._statuses.write_wait(declaration, str(error))
            except Retryable as error:
                failures.append(error)
                await self._statuses.write_wait(declaration, str(error))
        if failures:
            raise failures[0]

    def _require_readable(self, declaration: Declaration) -> None:
        """Check that nothing newer that cannot be read would be replaced.

        Raises:
            ActionRefused: the pipe in force or a later declaration of it cannot be read, as of a later release.
        """
        reason = self._declared.unreadable(declaration.name)
        if reason is None and declaration.pipe is not None:
            reason = self._registry.held(declaration.name)
        if reason is not None:
            raise ActionRefused(f"the pipe is held: {reason}. {HELD_ADVICE}")

    async def _follow_pause(self, declaration: Declaration) -> None:
        """Pause or resume the pipe where it is not as declared. Its rollout stays as it is."""
        current = self._registry.get(declaration.name)
        if declaration.pipe is None or current is None or current.paused == declaration.paused:
            return
        await self._actions.take(
            declaration,
            ActionKind.PAUSE,
            declaration.state.value,
            f"declared by {declaration.author}",
            lambda snapshot: rollout.change_pause(snapshot, declaration.name, paused=declaration.paused),
        )

    async def _advance(self, declaration: Declaration) -> None:
        final_status = self._declared.status(declaration, final=True)
        current, pipe = self._registry.get(declaration.name), declaration.pipe
        if final_status is not None:
            self._ramps.end(declaration.name)
            if final_status.state is RolloutState.ROLLED_BACK and current is not None:
                await self._finish_roll_back(declaration, current, final_status.reason)
        elif current is not None and self._replaces_rollout(declaration, current):
            reason = f"declaration {declaration.pipe_number} replaces it"
            await self._revisions.roll_back(declaration, current, reason)
        elif pipe is None:
            await self._delete(declaration, current)
        elif current is None or current.cap is not None:
            await self._new_pipes.advance(declaration, pipe, current)
        elif current.rollout is not None:
            await self._revisions.advance(declaration, current, current.rollout)
        elif current.pipe == pipe:
            await self._statuses.write(declaration, RolloutState.IN_FORCE, current.number, WHOLE, "")
        else:
            await self._revisions.begin(declaration, pipe, current)

    def _replaces_rollout(self, declaration: Declaration, current: PipeRevision) -> bool:
        """Whether the rollout of an earlier declaration runs. What cannot be read is not rolled back, only deleted."""
        is_replaced = current.rollout is not None and not introduces(current, declaration)
        return is_replaced and self._registry.held(declaration.name) is None

    async def _delete(self, declaration: Declaration, current: PipeRevision | None) -> None:
        if current is not None or self._registry.held(declaration.name):
            if await self._admission.stopped(declaration):
                return
            await self._actions.take(
                declaration,
                ActionKind.ROLLOUT,
                "delete",
                "declared",
                lambda snapshot: rollout.delete(snapshot, declaration.name),
                self._admission.forced_by(declaration),
            )
        await self._statuses.write(declaration, RolloutState.IN_FORCE, None, 0, "deleted")

    async def _finish_roll_back(self, declaration: Declaration, current: PipeRevision, reason: str) -> None:
        """Take the action of a roll-back whose reason is on record, unless it was taken or there is nothing to undo."""
        if introduces(current, declaration):
            await self._revisions.roll_back(declaration, current, reason)
        elif current.pipe == declaration.pipe:
            await self._new_pipes.lower_cap(declaration, current, reason)
