"""Brings what is declared into force: compares it with the pipes, and takes one step of one pipe after the other."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hifi import log
from hifi.clock import MICROSECONDS, now_us
from hifi.control import request, rollout_status
from hifi.control.action import STREAM, Action, ActionHistory, ActionKind
from hifi.control.declaration import Declaration, Declarations
from hifi.control.fenced_writer import FencedWriter
from hifi.control.permission import Permission, permission
from hifi.control.request import Request, wishes
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.control.steps import StepRefused, StepRight
from hifi.control.verdict import VALID_S, Verdict, Verdicts
from hifi.errors import Misconfigured, Retryable
from hifi.event import Record
from hifi.pipe import rollout
from hifi.pipe.function_import import require_function
from hifi.pipe.limit_check import functions, require_allowed, require_mask_keys
from hifi.pipe.registry import PipeRegistry, RegistrySnapshot
from hifi.pipe.revision import WHOLE, PipeVersion, Rollout
from hifi_provision.ramp import Move, Ramp, RampDecision, RampRules

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


class Wanted:
    """What people declared and asked for, and what became of it. Filled from the control plane's topics."""

    def __init__(self) -> None:
        self._declared = Declarations()
        self.statuses: dict[str, RolloutStatus] = {}
        """Pipe to the status that was written last."""
        self._requests: defaultdict[str, list[Request]] = defaultdict(list)

    @property
    def declarations(self) -> Mapping[str, Declaration]:
        """Pipe to its newest declaration."""
        return self._declared.newest

    def take_declaration(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take in a record of the topic `declared`."""
        self._declared.take(key, value, offset)

    def take_request(self, _: bytes | None, value: bytes | None, __: int) -> None:
        """Take in a record of the topic `requests`."""
        found = request.decode(value)
        self._requests[found.scope].append(found)

    def take_status(self, _: bytes | None, value: bytes | None, __: int) -> None:
        """Take in a record of the topic `rollouts`."""
        found = rollout_status.decode(value)
        self.statuses[found.pipe] = found

    def requests(self, pipe: str) -> list[Request]:
        """All requests about a pipe, in their order."""
        return self._requests[f"pipe/{pipe}"]


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
                await self._advance(wanted)
            except StepRefused as error:
                await self._wait(wanted, str(error))

    async def _advance(self, wanted: Declaration) -> None:
        status = self._wanted.statuses.get(wanted.name)
        current = self._registry.get(wanted.name)
        if status is not None and status.declaration == wanted.number and status.state.final:
            self._ramps.pop(wanted.name, None)
            if status.state is RolloutState.ROLLED_BACK and _introduces(current, wanted):
                await self._roll_back(wanted, current, status.reason)
        elif wanted.pipe is None:
            await self._delete(wanted, current)
        elif current is None:
            await self._put_new(wanted)
        elif current.rollout is not None:
            if _introduces(current, wanted):
                await self._go_on(wanted, current, current.rollout)
            else:
                await self._roll_back(wanted, current, f"declaration {wanted.number} replaces it")
        elif current.pipe == wanted.pipe:
            await self._tell(wanted, RolloutState.IN_FORCE, current.revision, WHOLE, "")
        else:
            await self._begin(wanted, current)

    async def _delete(self, wanted: Declaration, current: PipeVersion | None) -> None:
        if current is not None:
            await self._change(
                wanted,
                ActionKind.PROVISION,
                "delete",
                "declared",
                lambda known: rollout.delete(known, wanted.name),
            )
        await self._tell(wanted, RolloutState.IN_FORCE, None, 0, "deleted")

    async def _put_new(self, wanted: Declaration) -> None:
        pipe = wanted.pipe
        assert pipe is not None
        if not await self._accept(wanted):
            return
        await self._change(
            wanted,
            ActionKind.PROVISION,
            "a new pipe",
            "declared",
            lambda known: rollout.put_at_once(known, pipe),
        )
        await self._tell(wanted, RolloutState.IN_FORCE, 1, WHOLE, "a new pipe")

    async def _begin(self, wanted: Declaration, current: PipeVersion) -> None:
        pipe, share = wanted.pipe, self._rules.shares[0]
        assert pipe is not None
        if not await self._accept(wanted):
            return
        step = f"a revision after {current.revision}: 0 % to {rollout.percent(share)}"
        forced = wishes(self._wanted.requests(wanted.name), wanted.number).forced.get(0, "")
        await self._change(
            wanted,
            ActionKind.PROVISION,
            step,
            f"declared by {wanted.author}",
            lambda known: rollout.begin(known, pipe, share),
            forced,
        )
        known = self._registry.get(wanted.name)
        revision = known.rollout.next.revision if known is not None and known.rollout is not None else None
        await self._tell(wanted, RolloutState.RAMPING, revision, share, "the phase has begun")

    async def _accept(self, wanted: Declaration) -> bool:
        """Whether a declaration may be put into force; if not, its status tells why."""
        assert wanted.pipe is not None
        published = {known.pipe.pipe: known.pipe for known in self._registry.all()}
        try:
            require_allowed([wanted.pipe])
            for _, path in functions(wanted.pipe):
                require_function(path)
            require_mask_keys([wanted.pipe], published)
        except Misconfigured as error:
            await self._tell(wanted, RolloutState.REFUSED, None, 0, str(error))
            return False
        return True

    async def _go_on(self, wanted: Declaration, current: PipeVersion, running: Rollout) -> None:
        """Take the next step of a rollout if there is one to take now."""
        name, revision, now = wanted.name, running.next.revision, now_us()
        known = self._ramps.get(name)
        if known is None or known[:2] != (wanted.number, revision):
            known = wanted.number, revision, Ramp(self._rules, revision, current.revision, running.share, now)
            self._ramps[name] = known
        ramp = known[2]
        if ramp.share != running.share:
            ramp.begin_phase(running.share, now)
        asked = wishes(self._wanted.requests(name), wanted.number)
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
        scopes = (
            (STREAM, action.scope) if self._registry.get(action.scope.removeprefix("pipe/")) else (STREAM,)
        )
        condition = self._verdicts.condition(scopes, now)
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
        if status is not None and status.declaration == wanted.number:
            if not status.state.final:
                await self._tell(wanted, status.state, status.revision, status.share, reason)
        else:
            await self._tell(wanted, RolloutState.WAITING, None, 0, reason)

    async def _tell(
        self, wanted: Declaration, state: RolloutState, revision: int | None, share: int, reason: str
    ) -> None:
        """Write the status where it has changed."""
        before, now = self._wanted.statuses.get(wanted.name), now_us()
        status = RolloutStatus(wanted.name, wanted.number, wanted.author, state, revision, share, reason, now)
        if before is not None and replace(before, reason="", since_us=0) == replace(
            status, reason="", since_us=0
        ):
            status = replace(status, since_us=before.since_us)
            if before == status:
                return
        await self._writers.control.write(self._rollouts, [status.record()])
        self._wanted.statuses[wanted.name] = status
        logger.info(
            "rollout-status",
            pipe=wanted.name,
            declaration=wanted.number,
            state=state.value,
            revision=revision,
            share_per_10000=share,
            reason=reason,
        )


def _introduces(current: PipeVersion | None, wanted: Declaration) -> bool:
    """Whether the rollout that runs introduces what is wanted."""
    return current is not None and current.rollout is not None and current.rollout.next.pipe == wanted.pipe
