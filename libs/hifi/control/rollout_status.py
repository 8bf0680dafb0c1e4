"""How far the rollout service is with a declaration. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Final

import orjson
from pydantic import Field

from hifi.control.declaration import Declaration
from hifi.record.record import Record
from hifi.record.typed_body import RecordBodyReader


class RolloutState(StrEnum):
    """How far a declaration is."""

    WAITING = "waiting"
    """It may not be put into force yet; the reason tells what it waits for."""
    RAMPING = "ramping"
    """A share of the keys gets it."""
    PAUSED = "paused"
    """A person stopped the ramp at its present share."""
    IN_FORCE = "in force"
    ROLLED_BACK = "rolled back"
    """It was worse than the revision before, or a person aborted it."""
    REFUSED = "refused"
    """It has an error, and was not put into force."""

    @property
    def final(self) -> bool:
        """Whether the rollout service has nothing more to do with the declaration."""
        return self in (RolloutState.IN_FORCE, RolloutState.ROLLED_BACK, RolloutState.REFUSED)


@dataclass(frozen=True, slots=True)
class RolloutStatus:
    """How far a declaration is.

    Attributes:
        pipe: its name.
        declaration: number of the declaration that brought the pipe.
        author: who declared it.
        state: how far it is.
        revision: that the declaration became; None: none yet, or the pipe was deleted.
        share: of the keys that gets it, in 1/10,000.
        reason: why it is so, or what it waits for, for people.
        since_us: when the state or the share began, microseconds since 1970 UTC.
    """

    pipe: str
    declaration: Annotated[int, Field(description="Number of the declaration.")]
    author: str
    state: RolloutState
    revision: int | None
    share: Annotated[int, Field(description="Share of the keys, in 1/10,000.")]
    reason: str
    since_us: int

    def same_state(self, status: "RolloutStatus") -> bool:
        """Whether the two differ in nothing but the reason and the time."""
        return replace(self, reason="", since_us=0) == replace(status, reason="", since_us=0)

    def record(self) -> Record:
        """The record for the topic `rollouts`."""
        return Record(self.pipe.encode(), orjson.dumps(asdict(self)), [])

    def json(self) -> dict[str, Any]:
        """JSON for reports."""
        return asdict(self)


_STATUS: Final = RecordBodyReader(RolloutStatus, "a rollout's status")


def decode(value: bytes | None) -> RolloutStatus:
    """A status from the value of a record.

    Raises:
        ValueError: it is not the record of a status.
    """
    return _STATUS.of_value(value)


def newest_statuses(
    declarations: Mapping[str, Declaration], written_statuses: Mapping[str, RolloutStatus]
) -> Mapping[str, RolloutStatus]:
    """Pipe to how far its newest declaration is; `waiting` where the rollout service has not seen it yet.

    Args:
        declarations: pipe to its newest declaration.
        written_statuses: pipe to the status that the rollout service wrote last.
    """
    return {
        name: written_statuses[name]
        if name in written_statuses and written_statuses[name].declaration >= declaration.pipe_number
        else _unseen(declaration)
        for name, declaration in sorted(declarations.items())
    }


def _unseen(declaration: Declaration) -> RolloutStatus:
    reason = "the rollout service has not seen it yet"
    return RolloutStatus(
        declaration.name,
        declaration.pipe_number,
        declaration.author,
        RolloutState.WAITING,
        None,
        0,
        reason,
        declaration.at_us,
    )
