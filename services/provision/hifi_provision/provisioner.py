"""Brings what is declared into force: compares it with the pipes, and takes one step of one pipe after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hifi.control.action import STREAM, Action, ActionHistory, ActionKind
from hifi.control.declaration import Declaration
from hifi.control.permission import Permission, permission
from hifi.control.request import wishes
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.control.steps import StepRefused, StepRight
from hifi.control.verdict import VALID_S, Verdict, Verdicts
from hifi.kafka.fenced_writer import FencedWriter
from hifi.pipe import rollout
from hifi.pipe.registry import PipeRegistry, RegistrySnapshot
from hifi.pipe.revision import WHOLE, PipeVersion, RateCap, Rollout
from hifi.record.event import Record
from hifi.runtime import log
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_provision.checks import require_capacity, require_valid
from hifi_provision.ramp import Move, Ramp, RampDecision, RampRules
from hifi_provision.wanted import Wanted

ACTOR: Final = "provision"
_EXPECTED_S: Final = 20
"""Time within which a step is over, seconds: it writes a few records."""
_READ_S: Final = 10.0


logger = log.get(__name__)

Transition = Callable[[RegistrySnapshot], Sequence[Record]]


@dataclass(frozen=True, slots=True)
class Writers:
    """Where the provisioner writes.

    Attributes:
        pipes: on the stream's Kafka.
        control: on the control plane's.
    """

    pipes: FencedWriter
    control: FencedWriter


class Provisioner:
    """Drives the pipes of one stream. Call `step` again and again; what it finds decides what it does next.

    Args:
        topic: of the pipes.
        rollouts: topic of the statuses.
        rules: how a new revision gets its share.
        registry: of the pipes, started.
        wanted: kept up to date by the caller.
        verdicts: of observe; kept up to date by the caller.
        right: to steps.
        writers: started.
    """

    def __init__(
        self,
        *,
        topic: str,
        rollouts: str,
        rules: RampRules,
        registry: PipeRegistry,
        wanted: Wanted,
        verdicts: Verdicts,
        right: StepRight,
        writers: Writers,
    ) -> None:
        self._topic = topic
        self._rollouts = rollouts
        self._rules = rules
        self._registry = registry
        self._wanted = wanted
        self._verdicts = verdicts
        self._right = right
        self._writers = writers
        self._ramps: dict[str, tuple[int, int, Ramp]] = {}
        """Pipe to declaration, revision and ramp of the rollout that runs."""

    async def step(self) -> None:
        """Look at every declared pipe once, and do what can be done now.

        Raises:
            Overtaken: another provisioner has started.
            Retryable: Kafka does not answer.
        """
        for wanted in sorted(self._wanted.declarations.values(), key=lambda one: one.number):
            try:
                await self._follow_pause(wanted)
                await self._advance(wanted)
            except StepRefused as error:
                await self._wait(wanted, str(error))

    async def _follow_pause(self, wanted: Declaration) -> None:
        """Pause or resume the pipe where it is not as declared. How far its rollout is stays as it is."""
        current = self._registry.get(wanted.name)
        if wanted.pipe is None or current is None or current.paused == wanted.paused:
            return
        await self._change(
            wanted,
            ActionKind.PAUSE,
            wanted.state.value,
            f"declared by {wanted.author}",
            lambda known: rollout.change_pause(known, wanted.name, paused=wanted.paused),
        )

    async def _advance(self, wanted: Declaration) -> None:
        status = self._wanted.statuses.get(wanted.name)
        current = self._registry.get(wanted.name)
        if status is not None and status.declaration == wanted.pipe_number and status.state.final:
            self._ramps.pop(wanted.name, None)
            if status.state is RolloutState.ROLLED_BACK and current is not None:
                await self._finish_roll_back(wanted, current, status.reason)
        elif wanted.pipe is None:
            await self._delete(wanted, current)
        elif current is None or current.cap is not None:
            await self._advance_new(wanted, current)
        elif current.rollout is not None:
            if _introduces(current, wanted):
                await self._go_on(wanted, current, current.rollout)
            else:
                await self._roll_back(wanted, current, f"declaration {wanted.pipe_number} replaces it")
        elif current.pipe == wanted.pipe:
            await self._tell(wanted, RolloutState.IN_FORCE, current.revision, WHOLE, "")
        else:
            await self._begin(wanted, current)

    async def _delete(self, wanted: Declaration, current: PipeVersion | None) -> None:
        name, kind = wanted.name, ActionKind.PROVISION
        if current is not None:
            await self._change(wanted, kind, "delete", "declared", lambda known: rollout.delete(known, name))
        await self._tell(wanted, RolloutState.IN_FORCE, None, 0, "deleted")

    async def _put_new(self, wanted: Declaration) -> None:
        pipe = wanted.pipe
        assert pipe is not None
        if not await self._accept(wanted):
            return
        cap = self._rules.first_cap(pipe)
        await self._change(
            wanted,
            ActionKind.PROVISION,
            f"a new pipe: {rollout.cap_text(cap)}",
            "declared",
            lambda known: rollout.put_at_once(known, pipe, paused=wanted.paused, cap=cap),
            self._forced_to_begin(wanted),
        )
        known = self._registry.get(wanted.name)
        revision = None if known is None else known.revision
        if cap is None:
            await self._tell(wanted, RolloutState.IN_FORCE, revision, WHOLE, "a new pipe")
        else:
            await self._tell(wanted, RolloutState.RAMPING, revision, cap.share, "the phase has begun")

    async def _advance_new(self, wanted: Declaration, current: PipeVersion | None) -> None:
        """Put a pipe into force that is new, or has not taken its full rate yet."""
        if current is not None and current.cap is not None and current.pipe == wanted.pipe:
            await self._go_on_new(wanted, current, current.cap)
        else:
            await self._put_new(wanted)

    async def _go_on_new(self, wanted: Declaration, current: PipeVersion, cap: RateCap) -> None:
        """Raise the rate of a new pipe if it may be raised now."""
        revision, now = current.revision, now_us()
        ramp = self._ramp(wanted, revision, None, cap.share, now)
        asked = wishes(self._wanted.requests(wanted.name), wanted.pipe_number)
        decision = ramp.decide(self._verdict(wanted.name), asked, now)
        if decision.move is Move.ROLL_BACK:
            await self._tell(wanted, RolloutState.ROLLED_BACK, revision, cap.share, decision.reason)
            logger.warning("rolled-back", pipe=wanted.name, revision=revision, reason=decision.reason)
            await self._lower_cap(wanted, current, decision.reason)
            return
        if decision.move is Move.WAIT:
            state = RolloutState.PAUSED if asked.paused_by is not None else RolloutState.RAMPING
            await self._tell(wanted, state, revision, cap.share, decision.reason)
            return
        following = None if decision.move is Move.PROMOTE else self._rules.cap(current.pipe, decision.share)
        await self._change_cap(wanted, ActionKind.PROVISION, following, decision.reason, decision.forced_by)
        if following is None:
            await self._tell(wanted, RolloutState.IN_FORCE, revision, WHOLE, decision.reason)
        else:
            ramp.begin_phase(following.share, now_us())
            await self._tell(wanted, RolloutState.RAMPING, revision, following.share, "the phase has begun")

    async def _finish_roll_back(self, wanted: Declaration, current: PipeVersion, reason: str) -> None:
        """Take the step of a roll-back whose reason is on record, unless it was taken."""
        if _introduces(current, wanted):
            await self._roll_back(wanted, current, reason)
        elif current.cap is not None:
            await self._lower_cap(wanted, current, reason)

    async def _lower_cap(self, wanted: Declaration, current: PipeVersion, reason: str) -> None:
        """Give a new pipe that was rolled back the rate of the first phase again."""
        first = self._rules.first_cap(current.pipe)
        if current.cap is None or first is None or current.cap.share <= first.share:
            return
        await self._change_cap(wanted, ActionKind.ROLL_BACK, first, reason)
        self._ramps.pop(wanted.name, None)

    async def _change_cap(
        self, wanted: Declaration, kind: ActionKind, cap: RateCap | None, reason: str, forced_by: str = ""
    ) -> None:
        step = f"the new pipe: {rollout.cap_text(cap)}"
        await self._change(
            wanted, kind, step, reason, lambda known: rollout.change_cap(known, wanted.name, cap), forced_by
        )

    async def _begin(self, wanted: Declaration, current: PipeVersion) -> None:
        pipe, share = wanted.pipe, self._rules.shares[0]
        assert pipe is not None
        if not await self._accept(wanted):
            return
        step = f"a revision after {current.revision}: 0 % to {rollout.percent(share)}"
        await self._change(
            wanted,
            ActionKind.PROVISION,
            step,
            f"declared by {wanted.author}",
            lambda known: rollout.begin(known, pipe, share),
            self._forced_to_begin(wanted),
        )
        known = self._registry.get(wanted.name)
        revision = known.rollout.next.revision if known and known.rollout else None
        await self._tell(wanted, RolloutState.RAMPING, revision, share, "the phase has begun")

    def _forced_to_begin(self, wanted: Declaration) -> str:
        """Who wants it begun although no verdict allows it; empty: nobody."""
        return wishes(self._wanted.requests(wanted.name), wanted.pipe_number).forced.get(0, "")

    async def _accept(self, wanted: Declaration) -> bool:
        """Whether a declaration may be put into force; if not, its status tells why.

        Raises:
            StepRefused: it waits for capacity, and no person forces it.
        """
        assert wanted.pipe is not None
        published = {known.pipe.pipe: known.pipe for known in self._registry.all()}
        try:
            require_valid(wanted.pipe, published)
        except Misconfigured as error:
            await self._tell(wanted, RolloutState.REFUSED, None, 0, str(error))
            return False
        if not self._forced_to_begin(wanted):
            require_capacity(wanted.pipe, published, self._rules.rating)
        return True

    async def _go_on(self, wanted: Declaration, current: PipeVersion, running: Rollout) -> None:
        """Take the next step of a rollout if there is one to take now."""
        name, revision, now = wanted.name, running.next.revision, now_us()
        ramp = self._ramp(wanted, revision, current.revision, running.share, now)
        asked = wishes(self._wanted.requests(name), wanted.pipe_number)
        decision = ramp.decide(self._verdict(name), asked, now)
        share = rollout.percent(running.share)
        if decision.move is Move.ROLL_BACK:
            await self._roll_back(wanted, current, decision.reason)
        elif decision.move is Move.WAIT:
            state = RolloutState.PAUSED if asked.paused_by is not None else RolloutState.RAMPING
            await self._tell(wanted, state, revision, running.share, decision.reason)
        elif decision.move is Move.PROMOTE:
            await self._change(
                wanted,
                ActionKind.PROVISION,
                f"revision {revision}: promoted",
                decision.reason,
                lambda known: rollout.promote(known, name),
                decision.forced_by,
            )
            await self._tell(wanted, RolloutState.IN_FORCE, revision, WHOLE, decision.reason)
        else:
            await self._raise_share(
                wanted, ramp, revision, decision, f"{share} to {rollout.percent(decision.share)}"
            )

    def _ramp(
        self, wanted: Declaration, revision: int, baseline: int | None, share: int, now_us: int
    ) -> Ramp:
        """What is known of the rollout that runs, or an empty start after a restart."""
        known = self._ramps.get(wanted.name)
        if known is None or known[:2] != (wanted.pipe_number, revision):
            known = wanted.pipe_number, revision, Ramp(self._rules, revision, baseline, share, now_us)
            self._ramps[wanted.name] = known
        if known[2].share != share:
            known[2].begin_phase(share, now_us)
        return known[2]

    async def _raise_share(
        self, wanted: Declaration, ramp: Ramp, revision: int, decision: RampDecision, change: str
    ) -> None:
        await self._change(
            wanted,
            ActionKind.PROVISION,
            f"revision {revision}: {change}",
            decision.reason,
            lambda known: rollout.change_share(known, wanted.name, decision.share),
            decision.forced_by,
        )
        ramp.begin_phase(decision.share, now_us())
        await self._tell(wanted, RolloutState.RAMPING, revision, decision.share, "the phase has begun")

    async def _roll_back(self, wanted: Declaration, current: PipeVersion | None, reason: str) -> None:
        """End the rollout that runs. The reason is on record first: then nobody begins it again."""
        if current is None or current.rollout is None:
            return
        revision = current.rollout.next.revision
        if _introduces(current, wanted):
            await self._tell(wanted, RolloutState.ROLLED_BACK, revision, 0, reason)
        logger.warning("rolled-back", pipe=wanted.name, revision=revision, reason=reason)
        await self._change(
            wanted,
            ActionKind.ROLL_BACK,
            f"revision {revision}: {rollout.percent(current.rollout.share)} to 0 %",
            reason,
            lambda known: rollout.abort(known, wanted.name),
        )
        self._ramps.pop(wanted.name, None)

    async def _change(
        self,
        wanted: Declaration,
        kind: ActionKind,
        step: str,
        reason: str,
        transition: Transition,
        forced_by: str = "",
    ) -> None:
        """Change the pipes as one step of the control plane.

        Raises:
            StepRefused: it may not be done now; the text says what it waits for.
            Retryable: Kafka does not answer.
        """
        scope, began = f"pipe/{wanted.name}", now_us()
        action = Action(
            ACTOR, kind, scope, step, reason, began, began + _EXPECTED_S * MICROSECONDS, forced_by=forced_by
        )

        async def write(_: int) -> None:
            # The registry was loaded after every earlier provisioner had been overtaken, and follows since.
            try:
                records = transition(self._registry.snapshot())
            except Misconfigured as error:
                raise Retryable(str(error)) from error
            offset = await self._writers.pipes.write(self._topic, records)
            if not await self._registry.wait_for_version(offset, _READ_S):
                raise Retryable(f"the pipes cannot be read within {_READ_S:.0f} s")

        await self._right.take(action, lambda history: self._allowed(action, history), write)

    def _allowed(self, action: Action, history: ActionHistory) -> Permission:
        now = now_us()
        known = self._registry.get(action.scope.removeprefix("pipe/"))
        condition = self._verdicts.condition((STREAM, action.scope) if known else (STREAM,), now)
        return permission(
            action.kind, action.scope, condition, history.running, now, forced=bool(action.forced_by)
        )

    def _verdict(self, name: str) -> Verdict | None:
        """The newest verdict on a pipe, unless it is too old to count."""
        found = self._verdicts.get(f"pipe/{name}")
        return found if found is not None and now_us() - found.at_us <= VALID_S * MICROSECONDS else None

    async def _wait(self, wanted: Declaration, reason: str) -> None:
        """Tell what a declaration waits for, in the state that it is in."""
        status = self._wanted.statuses.get(wanted.name)
        if status is not None and status.declaration == wanted.pipe_number:
            if not status.state.final:
                await self._tell(wanted, status.state, status.revision, status.share, reason)
        else:
            await self._tell(wanted, RolloutState.WAITING, None, 0, reason)

    async def _tell(
        self, wanted: Declaration, state: RolloutState, revision: int | None, share: int, reason: str
    ) -> None:
        """Write the status where it has changed."""
        before, now = self._wanted.statuses.get(wanted.name), now_us()
        status = RolloutStatus(
            wanted.name, wanted.pipe_number, wanted.author, state, revision, share, reason, now
        )
        if before is not None and before.same_state(status):
            status = replace(status, since_us=before.since_us)
        if before == status:
            return
        await self._writers.control.write(self._rollouts, [status.record()])
        self._wanted.statuses[wanted.name] = status
        logger.info("rollout-status", **status.json())


def _introduces(current: PipeVersion | None, wanted: Declaration) -> bool:
    """Whether the rollout that runs introduces what is wanted."""
    return current is not None and current.rollout is not None and current.rollout.next.pipe == wanted.pipe
