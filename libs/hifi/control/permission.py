"""Which actions may be taken when: the rules that all actors of the control plane keep. Pure.

What makes things better at once (restart what is dead, roll back, scale out, recover a colour) is always allowed. What
can make them worse waits until the health of its scope is known to be stable. A person who pauses or resumes a pipe
need not wait for that. No action begins before the one before it has ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hifi.control.action import Action, ActionKind
from hifi.control.verdict import Condition

_ALWAYS: Final = frozenset(
    {
        ActionKind.RESTART,
        ActionKind.ROLL_BACK,
        ActionKind.SCALE_OUT,
        ActionKind.RECOVER,
        ActionKind.PAUSE,
    }
)
_OBSERVERS: Final = frozenset({"service/observe"})
"""Scopes that are repaired although the health is unknown: without them it never becomes known."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether an action may be taken now; if not, what it waits for."""

    granted: bool
    reason: str = ""


GRANTED: Final = Permission(granted=True)


def permission(
    kind: ActionKind,
    scope: str,
    condition: Condition,
    running_actions: Iterable[Action],
    now_us: int,
    *,
    forced: bool = False,
) -> Permission:
    """Whether an action may be taken now.

    Args:
        kind: of the action.
        scope: that it changes.
        condition: of the scope and the stream, the worse of both.
        running_actions: actions that have not ended.
        now_us: microseconds since 1970 UTC.
        forced: a person takes the responsibility; the action before still ends first, since two actions at the same
            time would undo each other.
    """
    for action in running_actions:
        if not action.overdue(now_us):
            return Permission(granted=False, reason=f"{action.actor} acts on {action.scope}: {action.step}")
    if forced or kind in _ALWAYS or condition is Condition.STABLE:
        return GRANTED
    if scope in _OBSERVERS:
        return GRANTED
    if condition is Condition.UNKNOWN:
        return Permission(granted=False, reason="the health is unknown: observe gives no verdict")
    return Permission(granted=False, reason="the stream or the scope is unstable")
