"""The ramps of the rollouts that run, and the decision of each."""

from dataclasses import dataclass

from hifi.control.declaration import Declaration
from hifi.control.rollout_status import RolloutState
from hifi.control.verdict import VALID_S, Verdict, Verdicts
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi_rollout.declared_pipes import DeclaredPipes
from hifi_rollout.ramp import Ramp, RampDecision, RampRules


@dataclass(frozen=True, slots=True)
class _RunningRamp:
    """The ramp of a pipe, and the declaration and revision that it belongs to."""

    declaration: int
    revision: int
    ramp: Ramp


class Ramps:
    """Decides the next move of each rollout from the verdicts and the requests of people.

    Args:
        rules: how a new revision gets its share.
        declared: has the requests of people.
        verdicts: of observe; kept up to date by the caller.
    """

    def __init__(self, rules: RampRules, declared: DeclaredPipes, verdicts: Verdicts) -> None:
        self._rules = rules
        self._declared = declared
        self._verdicts = verdicts
        self._running: dict[str, _RunningRamp] = {}

    def decide(
        self, declaration: Declaration, revision: int, baseline: int | None, share: int
    ) -> RampDecision:
        """Decide the next move of a rollout. After a restart its phase begins anew.

        Args:
            declaration: that is rolled out.
            revision: number of the new revision.
            baseline: number of the revision before; None: the pipe is new.
            share: that the new revision has, in 1/10,000.
        """
        at_us = now_us()
        running_ramp = self._running.get(declaration.name)
        if (
            running_ramp is None
            or running_ramp.declaration != declaration.pipe_number
            or running_ramp.revision != revision
        ):
            ramp = Ramp(self._rules, revision, baseline, share, at_us)
            running_ramp = _RunningRamp(declaration.pipe_number, revision, ramp)
            self._running[declaration.name] = running_ramp
        if running_ramp.ramp.share != share:
            running_ramp.ramp.begin_phase(share, at_us)
        return running_ramp.ramp.decide(
            self._verdict(declaration.name), self._declared.wishes(declaration), at_us
        )

    def waiting_state(self, declaration: Declaration) -> RolloutState:
        """The state of a rollout that waits."""
        paused = self._declared.wishes(declaration).paused_by is not None
        return RolloutState.PAUSED if paused else RolloutState.RAMPING

    def begin_phase(self, name: str, share: int) -> None:
        """Note that a pipe's new revision has got another share, in 1/10,000."""
        self._running[name].ramp.begin_phase(share, now_us())

    def end(self, name: str) -> None:
        """Forget the rollout of a pipe."""
        self._running.pop(name, None)

    def _verdict(self, name: str) -> Verdict | None:
        """The newest verdict on a pipe, unless it is too old to count."""
        verdict = self._verdicts.get(f"pipe/{name}")
        if verdict is None or now_us() - verdict.at_us > VALID_S * MICROSECONDS:
            return None
        return verdict
