"""Actions of the actors of the control plane: one record when an action begins, one when it ends. Pure."""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Final

import orjson

from hifi.record.typed_body import RecordBodyReader

STREAM: Final = "stream"
"""The scope of what concerns the whole stream. Others are `pipe/NAME` and `service/NAME`."""


class ActionKind(StrEnum):
    """The kind of an action; `hifi.control.permission` tells when each may be taken."""

    ROLLOUT = "rollout"
    """Puts a pipe's revision into force, or raises its share."""
    DEPLOY = "deploy"
    """Replaces an instance by one of another release."""
    SCALE_IN = "scale-in"
    SCALE_OUT = "scale-out"
    RESTART = "restart"
    """Starts an instance in the place of a dead one."""
    ROLL_BACK = "roll-back"
    PAUSE = "pause"
    """Lets a pipe take no new events, or take them again, as a person declared."""
    SHIFT = "shift"
    """Changes the shares of the colours for maintenance, or puts a colour to sleep."""
    RECOVER = "recover"
    """Wakes a colour, or shifts requests away from one that is broken; only a person asks for it."""


class ActionState(StrEnum):
    """How far an action is."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Action:
    """An action of an actor.

    Attributes:
        actor: service that takes it, such as `rollout`.
        kind: what it does.
        scope: what it changes: `stream`, `pipe/NAME` or `service/NAME`.
        step: what exactly, for people: `revision 7: 10 % to 50 %`.
        reason: why, for people.
        started_us: microseconds since 1970 UTC.
        expected_end_us: when it should be over; later than that it is overdue and its actor may be gone.
        state: started, done or failed.
        ended_us: microseconds since 1970 UTC; None while it runs.
        outcome: what came out, for people.
        forced_by: name of the person who had it taken against the rules; empty: nobody.
        token: fencing token, larger for each later action; None until the action's record is written.
    """

    actor: str
    kind: ActionKind
    scope: str
    step: str
    reason: str
    started_us: int
    expected_end_us: int
    state: ActionState = ActionState.STARTED
    ended_us: int | None = None
    outcome: str = ""
    forced_by: str = ""
    token: int | None = None

    def overdue(self, now_us: int) -> bool:
        """Whether it has not ended although it should have."""
        return self.state is ActionState.STARTED and now_us > self.expected_end_us

    def ended(self, state: ActionState, now_us: int, outcome: str) -> "Action":
        """The record of its end."""
        return replace(self, state=state, ended_us=now_us, outcome=outcome)


_ACTION: Final = RecordBodyReader(Action, "an action", required=["state"])


def encode(action: Action) -> bytes:
    """An action as the value of a Kafka record. An action that starts has no token: its offset is the token."""
    return orjson.dumps(asdict(action))


def decode(value: bytes, offset: int) -> Action:
    """An action from a Kafka record at an offset.

    Raises:
        ValueError: it is not the record of an action.
    """
    action = _ACTION.of_value(value, offset)
    return action if action.token is not None else replace(action, token=offset)


class ActionHistory:
    """Actions in the order of their start, the newest ones, and those that have not ended.

    Args:
        limit: actions that are remembered.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._actions: dict[int, Action] = {}

    def put(self, action: Action) -> None:
        """Remember the start of an action, or its end. An end of an unknown action is remembered, too."""
        assert action.token is not None
        recorded_action = self._actions.get(action.token)
        if recorded_action is not None and recorded_action.state is not ActionState.STARTED:
            return  # an actor that was frozen tells the end of an action that another one has ended
        self._actions[action.token] = action
        while len(self._actions) > self._limit:
            del self._actions[next(iter(self._actions))]

    @property
    def newest_first(self) -> list[Action]:
        """All remembered actions."""
        return list(reversed(self._actions.values()))

    @property
    def running(self) -> list[Action]:
        """Actions that have not ended, oldest first."""
        return [action for action in self._actions.values() if action.state is ActionState.STARTED]

    def last(self, scope: str) -> Action | None:
        """The newest action on a scope; None: none is remembered."""
        return next((action for action in self.newest_first if action.scope == scope), None)
