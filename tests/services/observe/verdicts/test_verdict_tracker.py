"""How verdicts change over time."""

from hifi.control.verdict import Condition
from hifi_observe.verdicts.judgement import Reasons
from hifi_observe.verdicts.verdict_tracker import VerdictTracker

SECOND = 1_000_000
CALM = Reasons({})
LATE = Reasons({"stream": ("lag: p95 is 3.00 s",)})
BLIND = Reasons({}, "observe has no figures yet")


def stream(tracker, judgement, at_s):
    (verdict,) = tracker.step(["stream"], judgement, at_s * SECOND)
    return verdict


def test_a_scope_without_reasons_is_stable_from_the_start():
    verdict = stream(VerdictTracker(60), CALM, 5)
    assert (verdict.condition, verdict.since_us, verdict.reasons) == (Condition.STABLE, 5 * SECOND, ())


def test_it_is_stable_again_only_after_it_has_settled():
    tracker = VerdictTracker(60)
    assert stream(tracker, LATE, 0).reasons == ("lag: p95 is 3.00 s",)
    settling_verdict = stream(tracker, CALM, 59)
    assert (settling_verdict.condition, settling_verdict.since_us) == (Condition.UNSTABLE, 0)
    assert settling_verdict.reasons == ("lag: p95 is 3.00 s (59 s ago)",)
    settled_verdict = stream(tracker, CALM, 60)
    assert (settled_verdict.condition, settled_verdict.since_us, settled_verdict.reasons) == (
        Condition.STABLE,
        60 * SECOND,
        (),
    )


def test_what_is_unknown_does_not_count_as_settled():
    tracker = VerdictTracker(60)
    stream(tracker, LATE, 0)
    assert stream(tracker, BLIND, 30).condition is Condition.UNKNOWN
    assert stream(tracker, CALM, 40).condition is Condition.UNSTABLE


def test_scopes_that_are_gone_are_forgotten():
    tracker = VerdictTracker(60)
    tracker.step(["stream", "pipe/orders"], CALM, 0)
    assert [verdict.scope for verdict in tracker.step(["stream"], CALM, SECOND)] == ["stream"]
