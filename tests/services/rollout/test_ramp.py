"""When a rollout goes on and when it goes back: whole rollouts, simulated with fixed seeds."""

import random
from dataclasses import dataclass, field, replace

import pytest

from hifi.control.request import Request, RequestKind, Wishes, wishes
from hifi.control.revision_figures import RevisionFigures, RolloutFigures
from hifi.control.verdict import Condition, Verdict
from hifi.pipe.revision import WHOLE
from hifi_rollout.ramp import Move, Ramp, RampDecision, RampRules

RULES = RampRules(shares=(100, 1000, 5000, WHOLE), phase_s=60, phase_events=500, unstable_s=60, error=0.02)
OLD, NEW = 3, 4
NOTHING = Wishes(None, None, {})
LOOK_S = 3


@dataclass
class Pipe:
    """A pipe under load, whose figures rise as observe would count them.

    Attributes:
        seed: the seed of all chances.
        events_per_s: events that come in a second.
        dead: share of dead letters by revision.
        late: share of late deliveries by revision.
    """

    seed: int = 1
    events_per_s: int = 200
    dead: dict[int, float] = field(default_factory=dict)
    late: dict[int, float] = field(default_factory=dict)
    condition: Condition = Condition.STABLE
    reasons: tuple[str, ...] = ()
    now_us: int = 1_000_000_000
    since_us: int = 0

    def __post_init__(self) -> None:
        self.ramp = Ramp(RULES, NEW, OLD, RULES.shares[0], self.now_us)
        self.figures = {OLD: RevisionFigures(), NEW: RevisionFigures()}
        self._draw = random.Random(self.seed)

    def verdict(self) -> Verdict:
        figures = RolloutFigures(1, dict(self.figures))
        return Verdict("pipe/x", self.condition, self.since_us, self.now_us, self.reasons, {}, figures)

    def look(self, wishes: Wishes = NOTHING) -> RampDecision:
        """The decision after some more seconds of traffic."""
        self.now_us += LOOK_S * 1_000_000
        for _ in range(self.events_per_s * LOOK_S):
            revision = NEW if self._draw.random() * WHOLE < self.ramp.share else OLD
            revision_figures = self.figures[revision]
            is_dead = self._draw.random() < self.dead.get(revision, 0.001)
            is_late = not is_dead and self._draw.random() < self.late.get(revision, 0.01)
            self.figures[revision] = revision_figures + RevisionFigures(
                1, int(not is_dead), 0, int(is_dead), 0, int(is_late)
            )
        decision = self.ramp.decide(self.verdict(), wishes, self.now_us)
        if decision.move is Move.CHANGE_SHARE:
            self.ramp.begin_phase(decision.share, self.now_us)
        return decision

    def run(self, limit_s: int = 3600) -> RampDecision:
        """Go on until the rollout ends."""
        for _ in range(limit_s // LOOK_S):
            decision = self.look()
            if decision.move in (Move.PROMOTE, Move.ROLL_BACK):
                return decision
        return decision


def test_a_revision_that_is_no_worse_passes_all_phases_and_is_promoted() -> None:
    pipe = Pipe()
    shares = {pipe.ramp.share}
    while (decision := pipe.look()).move is not Move.PROMOTE:
        assert decision.move is not Move.ROLL_BACK, decision
        shares.add(pipe.ramp.share)
    assert shares == set(RULES.shares)
    assert decision.reason.startswith("no worse than revision 3 in ")


@pytest.mark.parametrize("count", [12, pytest.param(50, marks=pytest.mark.more)])
def test_of_50_equal_revisions_at_most_one_is_rolled_back(count: int) -> None:
    moves = [Pipe(seed=seed, events_per_s=100).run().move for seed in range(count)]
    assert moves.count(Move.ROLL_BACK) <= 1
    assert moves.count(Move.PROMOTE) >= count - 1


@pytest.mark.more
def test_two_percent_more_dead_letters_go_back_within_2000_events_in_19_of_20_runs() -> None:
    pipes = [Pipe(seed=seed, dead={NEW: 0.021}) for seed in range(20)]
    decisions = [pipe.run() for pipe in pipes]
    rolled_back = [
        decision.move is Move.ROLL_BACK and pipe.figures[NEW].ended <= 2000
        for pipe, decision in zip(pipes, decisions, strict=True)
    ]
    assert sum(rolled_back) >= 19
    assert "dead letters: " in decisions[0].reason
    assert "with the revision before" in decisions[0].reason


def test_late_deliveries_are_found_too() -> None:
    assert "deliveries later than the SLO" in Pipe(late={NEW: 0.2}).run().reason


def test_too_little_traffic_waits_and_says_so() -> None:
    pipe = Pipe(events_per_s=1)
    decision = pipe.run(limit_s=1800)
    assert decision.move is Move.WAIT
    assert decision.reason.startswith("too little traffic to judge: ")
    assert pipe.ramp.share == RULES.shares[0]


def test_without_figures_it_waits() -> None:
    pipe = Pipe()
    pipe.now_us += 120_000_000
    for verdict in (None, replace(pipe.verdict(), rollout=None)):
        assert pipe.ramp.decide(verdict, NOTHING, pipe.now_us).reason == (
            "observe gives no figures of the revisions"
        )


def test_lost_events_and_a_pipe_that_stays_unstable_go_back() -> None:
    pipe = Pipe()
    pipe.look()
    pipe.condition, pipe.since_us, pipe.reasons = Condition.UNSTABLE, pipe.now_us, ("lag: p95 3 s",)
    assert pipe.look().move is Move.WAIT
    assert pipe.run(limit_s=66) == RampDecision(Move.ROLL_BACK, "unstable for 63 s: lag: p95 3 s")
    lossy_pipe = Pipe()
    lossy_pipe.look()
    lossy_pipe.condition, lossy_pipe.reasons = Condition.UNSTABLE, ("loss: 3 events were lost",)
    assert lossy_pipe.look() == RampDecision(Move.ROLL_BACK, "loss: 3 events were lost")


def test_an_earlier_trouble_does_not_count_against_a_new_phase() -> None:
    pipe = Pipe()
    pipe.condition, pipe.since_us, pipe.reasons = Condition.UNSTABLE, 0, ("lag: p95 3 s",)
    assert pipe.look().move is Move.WAIT


def wishes_for(*kinds: RequestKind, share: int = 0) -> Wishes:
    return wishes([Request("x", 7, kind, "ann", 1, share) for kind in kinds], 7)


def test_a_person_can_pause_resume_abort_and_force() -> None:
    pipe = Pipe()
    paused_wishes, resumed_wishes = (
        wishes_for(RequestKind.PAUSE),
        wishes_for(RequestKind.PAUSE, RequestKind.RESUME),
    )
    decisions = [pipe.look(paused_wishes) for _ in range(120)]
    assert decisions[-1] == RampDecision(Move.WAIT, "paused by ann")
    assert pipe.look(resumed_wishes).move is Move.CHANGE_SHARE
    forced_decision = pipe.look(wishes_for(RequestKind.FORCE, share=1000))
    assert forced_decision == RampDecision(Move.CHANGE_SHARE, "forced by ann", 5000, "ann")
    assert pipe.look(wishes_for(RequestKind.FORCE, share=1000)).move is Move.WAIT  # this phase was not forced
    assert pipe.look(wishes_for(RequestKind.ABORT)) == RampDecision(Move.ROLL_BACK, "aborted by ann")


def test_a_paused_rollout_still_goes_back_when_it_is_worse() -> None:
    pipe = Pipe(dead={NEW: 0.2})
    decisions = [pipe.look(wishes_for(RequestKind.PAUSE)) for _ in range(60)]
    assert Move.ROLL_BACK in [decision.move for decision in decisions]


def test_requests_concern_one_declaration() -> None:
    request = Request("x", 7, RequestKind.ABORT, "ann", 1)
    assert wishes([request], 8) == NOTHING


@pytest.mark.parametrize("lost_us", [2, 3])
def test_figures_that_begin_anew_are_not_compared_with_the_ones_before(lost_us: int) -> None:
    pipe = Pipe()
    for _ in range(10):
        pipe.look()
    pipe.figures = {OLD: RevisionFigures(), NEW: RevisionFigures(accepted=9, dead_letters=9)}
    verdict = replace(pipe.verdict(), rollout=RolloutFigures(lost_us, pipe.figures))
    assert pipe.ramp.decide(verdict, NOTHING, pipe.now_us).move is Move.WAIT
