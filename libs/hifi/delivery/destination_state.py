"""States of destinations, and the records of the topic `destinations` that carry them. Pure.

The topic is compacted and has two kinds of records, both JSON:

    <pipe>/<destination>              the state that counts for all instances of egest and retrier
    <pipe>/<destination>/<partition>  the first offset of `parked` that may hold a delivery of it; none: null
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

import orjson
from pydantic import Field

from hifi.record.record import Record
from hifi.record.typed_body import RecordBodyReader

EGEST: Final = "egest"
"""`by` of a state that egest set itself; only these end by themselves."""


class DestinationState(StrEnum):
    """The treatment of the deliveries of a destination."""

    ACTIVE = "active"
    """They are sent, and retried when they fail. What is parked comes back."""
    PARKED = "parked"
    """Those that would be retried are parked instead; if an operator parked the destination, all are."""
    EXPIRING = "expiring"
    """As ACTIVE, but what is parked becomes dead letters."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """The last change of a destination's state.

    Attributes:
        state: since then.
        by: `egest` or `operator`.
        reason: one sentence.
        at_us: when, microseconds since 1970 UTC.
    """

    state: DestinationState = DestinationState.ACTIVE
    by: str = EGEST
    reason: str = ""
    at_us: int = 0


class DestinationName(NamedTuple):
    """A destination of a pipe."""

    pipe: str
    destination: str


@dataclass(frozen=True, slots=True)
class _FirstParked:
    first: Annotated[int, Field(ge=0)]


NEVER_PARKED: Final = StateChange()
_CHANGE: Final = RecordBodyReader(
    StateChange, "the state of a destination", required=["state", "by", "reason", "at_us"]
)
_POSITION: Final = RecordBodyReader(_FirstParked, "the position of a destination")


class DestinationStates:
    """The states that the records of the topic give together."""

    def __init__(self) -> None:
        self._changes: dict[DestinationName, StateChange] = {}
        self._positions: dict[tuple[DestinationName, int], int] = {}

    def get(self, name: DestinationName) -> StateChange:
        """The state of a destination."""
        return self._changes.get(name, NEVER_PARKED)

    def all(self) -> Mapping[DestinationName, StateChange]:
        """Every destination whose state was ever changed."""
        return self._changes

    def positions(self, partition: int) -> dict[DestinationName, int]:
        """Destination to the first offset of a partition of `parked` that may hold a delivery of it."""
        return {
            name: first_offset
            for (name, parked_partition), first_offset in self._positions.items()
            if parked_partition == partition
        }

    def take(self, key: bytes | None, value: bytes | None, _offset: int) -> None:
        """Apply a record.

        Raises:
            ValueError: it is not a record of this topic.
        """
        pipe, destination, *partition = (key or b"").decode().split("/")
        name = DestinationName(pipe, destination)
        if partition:
            position_key = name, int(partition[0])
            if value is None:
                self._positions.pop(position_key, None)
            else:
                self._positions[position_key] = _POSITION.of_value(value).first
        elif value is None:
            self._changes.pop(name, None)
        else:
            self._changes[name] = _CHANGE.of_value(value)


def state_record(name: DestinationName, change: StateChange) -> Record:
    """The record that sets the state of a destination."""
    content = {"state": change.state, "by": change.by, "reason": change.reason, "at_us": change.at_us}
    return Record("/".join(name).encode(), orjson.dumps(content), [])


def position_record(name: DestinationName, partition: int, first_offset: int | None) -> Record:
    """The record that says where the parked deliveries of a destination begin; None: there are none."""
    key = f"{name.pipe}/{name.destination}/{partition}".encode()
    return Record(key, orjson.dumps({"first": first_offset}) if first_offset is not None else None, [])
