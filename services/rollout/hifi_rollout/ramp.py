"""Decides when a rollout advances, and when it is rolled back. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hifi.control.capacity import MeshRating
from hifi.control.request import Wishes
from hifi.control.revision_figures import RolloutFigures
from hifi.control.verdict import Condition, Verdict
from hifi.pipe.model import Pipe
from hifi.pipe.revision import WHOLE, RateCap
from hifi.runtime.clock import MICROSECONDS
from hifi_rollout.evidence import Evidence

_LOSS: Final = "loss"
"""Begins a verdict's reason that events of the pipe were lost."""


@dataclass(frozen=True, slots=True)
class RampRules:
    """The rules by which a new revision gets its share.

    Attributes:
        shares: of the phases, in 1/10,000; rising, the last one is everything.
        phase_s: shortest time of a phase, seconds.
        phase_events: events of the new revision with an outcome that a phase needs.
        unstable_s: time for which the pipe may be unstable in a phase, seconds.
        error: bound on the probability of rolling back a revision that is no worse.
        new_pipe_per_s: full rate of a new pipe without a quota, events per second; 0: new pipes have no cap.
        rating: of the mesh, which the quotas of pipes may not exceed.
    """

    shares: tuple[int, ...]
    phase_s: float
    phase_events: int
    unstable_s: float
    error: float
    new_pipe_per_s: float = 0
    rating: MeshRating = field(default_factory=MeshRating)

    def first_cap(self, pipe: Pipe) -> RateCap | None:
        """The cap of a new pipe in the first phase; None: it has none."""
        return self.cap(pipe, self.shares[0])

    def cap(self, pipe: Pipe, share: int) -> RateCap | None:
        """The cap of a new pipe in a phase; None: it has none.

        Args:
            pipe: as it is declared. The cap is in ingest, so a pipe that collect reads has none.
            share: of the phase, in 1/10,000.
        """
        if not self.new_pipe_per_s or pipe.source.kind != "http":
            return None
        quota = pipe.source.quota
        full_per_s = self.new_pipe_per_s if quota is None or quota.events is None else quota.events
        return RateCap(share=share, events_per_s=full_per_s * share / WHOLE)


class Move(StrEnum):
    """The next move of a rollout."""

    WAIT = "wait"
    CHANGE_SHARE = "change-share"
    PROMOTE = "promote"
    ROLL_BACK = "roll-back"


@dataclass(frozen=True, slots=True)
class RampDecision:
    """The next move, and its reason.

    Attributes:
        move: of the rollout.
        reason: why, or what it waits for, for people.
        share: the next share in 1/10,000, of a change.
        forced_by: who wants it although no verdict allows it; empty: nobody.
    """

    move: Move
    reason: str
    share: int = 0
    forced_by: str = ""


class Ramp:
    """One rollout.

    Args:
        rules: how it gets its share.
        candidate: the new revision.
        baseline: the revision before; None: the pipe is new, and its verdicts alone decide.
        share: that the candidate has now, in 1/10,000.
        now_us: microseconds since 1970 UTC.
    """

    def __init__(
        self, rules: RampRules, candidate: int, baseline: int | None, share: int, now_us: int
    ) -> None:
        self._rules = rules
        self._candidate = candidate
        self._baseline = baseline
        self._evidence = Evidence(rules.error)
        self.share = share
        """That the candidate has, in 1/10,000."""
        self._began_us = now_us
        self._first_figures: RolloutFigures | None = None
        """Figures as they were first seen in this phase."""

    def begin_phase(self, share: int, now_us: int) -> None:
        """Note that the candidate got another share."""
        self.share, self._began_us, self._first_figures = share, now_us, None

    def decide(self, verdict: Verdict | None, wishes: Wishes, now_us: int) -> RampDecision:
        """Decide the next move.

        Args:
            verdict: the newest one on the pipe; None: there is none.
            wishes: of people about the rollout.
            now_us: microseconds since 1970 UTC.
        """
        if wishes.aborted_by is not None:
            return RampDecision(Move.ROLL_BACK, f"aborted by {wishes.aborted_by}")
        reason = self._judge(verdict, now_us)
        if reason:
            return RampDecision(Move.ROLL_BACK, reason)
        if self.share in wishes.forced:
            person = wishes.forced[self.share]
            return self._next_decision(f"forced by {person}", person)
        if wishes.paused_by is not None:
            return RampDecision(Move.WAIT, f"paused by {wishes.paused_by}")
        waiting_reason = self._waiting_reason(verdict, now_us)
        return (
            RampDecision(Move.WAIT, waiting_reason)
            if waiting_reason
            else self._next_decision(self._comparison_text(verdict))
        )

    def _judge(self, verdict: Verdict | None, now_us: int) -> str:
        """The reason why the candidate is worse; empty: there is none."""
        if verdict is None:
            return ""
        if verdict.rollout is not None:
            if self._first_figures is None or self._first_figures.since_us != verdict.rollout.since_us:
                self._first_figures = verdict.rollout
            if self._baseline is not None:
                problem = self._evidence.look(verdict.rollout, self._candidate, self._baseline)
                if problem:
                    return problem
        loss_reasons = [reason for reason in verdict.reasons if reason.startswith(_LOSS)]
        if loss_reasons:
            return loss_reasons[0]
        unstable_s = (now_us - max(verdict.since_us, self._began_us)) / MICROSECONDS
        if verdict.condition is Condition.UNSTABLE and unstable_s > self._rules.unstable_s:
            return f"unstable for {unstable_s:.0f} s: {'; '.join(verdict.reasons)}"
        return ""

    def _waiting_reason(self, verdict: Verdict | None, now_us: int) -> str:
        """The reason why the next phase waits; empty: it does not."""
        remaining_s = self._rules.phase_s - (now_us - self._began_us) / MICROSECONDS
        if remaining_s > 0:
            return f"the phase lasts {self._rules.phase_s:g} s"
        event_count = self._ended_events(verdict)
        if event_count is None:
            return "observe gives no figures of the revisions"
        if event_count < self._rules.phase_events:
            return f"too little traffic to judge: {event_count:,} of {self._rules.phase_events:,} events"
        return ""

    def _ended_events(self, verdict: Verdict | None) -> int | None:
        """Events of the candidate with an outcome in this phase."""
        if verdict is None or verdict.rollout is None or self._first_figures is None:
            return None
        return verdict.rollout.of(self._candidate).since(self._first_figures.of(self._candidate)).ended

    def _comparison_text(self, verdict: Verdict | None) -> str:
        comparison = (
            "no reason against it" if self._baseline is None else f"no worse than revision {self._baseline}"
        )
        return f"{comparison} in {self._ended_events(verdict) or 0:,} events"

    def _next_decision(self, reason: str, forced_by: str = "") -> RampDecision:
        if self.share >= WHOLE:
            return RampDecision(Move.PROMOTE, reason, WHOLE, forced_by)
        share = next(share for share in self._rules.shares if share > self.share)
        return RampDecision(Move.CHANGE_SHARE, reason, share, forced_by)
