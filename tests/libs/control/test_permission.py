"""The table of who may act when."""

import pytest

from hifi.control.action import Action, ActionKind
from hifi.control.permission import permission
from hifi.control.verdict import Condition

NOW = 1_000_000
RUNNING = Action(
    "deploy", ActionKind.DEPLOY, "service/egest", "egest-2 to 0.2.0", "", NOW - 10, NOW + 10, token=1
)
REPAIRS = [ActionKind.RESTART, ActionKind.ROLL_BACK, ActionKind.SCALE_OUT, ActionKind.RECOVER]
RISKS = [ActionKind.ROLLOUT, ActionKind.DEPLOY, ActionKind.SCALE_IN, ActionKind.SHIFT]


def granted(kind, condition, *, scope="service/egest", running=(), forced=False):
    return permission(kind, scope, condition, running, NOW, forced=forced)


@pytest.mark.parametrize("kind", REPAIRS)
@pytest.mark.parametrize("condition", list(Condition))
def test_repairs_are_allowed_whatever_the_health(kind, condition):
    assert granted(kind, condition).granted


@pytest.mark.parametrize("kind", RISKS)
def test_what_can_make_things_worse_needs_a_stable_stream(kind):
    assert granted(kind, Condition.STABLE).granted
    assert "unstable" in granted(kind, Condition.UNSTABLE).reason
    assert "observe gives no verdict" in granted(kind, Condition.UNKNOWN).reason


@pytest.mark.parametrize("condition", [Condition.UNSTABLE, Condition.UNKNOWN])
def test_a_person_may_force_what_the_health_forbids(condition):
    assert granted(ActionKind.DEPLOY, condition, forced=True).granted


def test_observe_itself_may_be_deployed_without_a_verdict():
    assert granted(ActionKind.DEPLOY, Condition.UNKNOWN, scope="service/observe").granted


@pytest.mark.parametrize("kind", list(ActionKind))
@pytest.mark.parametrize("forced", [False, True])
def test_every_action_waits_for_the_one_before(kind, forced):
    refusal = granted(kind, Condition.STABLE, running=[RUNNING], forced=forced)
    assert refusal.reason == "deploy acts on service/egest: egest-2 to 0.2.0"


def test_an_overdue_action_holds_nothing_up():
    overdue_action = Action(
        "deploy", ActionKind.DEPLOY, "service/egest", "egest-2", "", NOW - 100, NOW - 1, token=1
    )
    assert granted(ActionKind.DEPLOY, Condition.STABLE, running=[overdue_action]).granted
