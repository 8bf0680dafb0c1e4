"""When a minute may be judged: a snapshot of Kafka, and the order in which its parts are asked for.

First the end of `accepted`, then the services' committed offsets, last the end offsets of all topics. Once observe has
read every topic up to these ends, every successor of every record below the committed offsets has been read, and every
record that an earlier tally names: services acknowledge outputs before they commit, ingest before it tallies. So what has
no successor then is lost, and no clock was needed to say so.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClosingRules:
    """When minutes close and for how long they are amended, seconds."""

    settle_s: float = 300
    """After its end, before a minute closes."""
    amend_s: float = 3600
    """After its end, during which anything that arrives amends a minute; what is unresolved is followed for longer."""
    follow_s: float = 7 * 86400
    """After its end, during which the unresolved is followed."""


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """Kafka's state of one partition number, asked for in the order of the fields."""

    taken_us: int
    """Wall time before anything was asked, microseconds since 1970 UTC."""
    ack_reports_end: int
    """End offset of `accepted`."""
    committed: Mapping[str, int]
    """Topic to the committed offset of the service that reads it."""
    ends: Mapping[str, int]
    """Topic to its end offset."""

    def reached(self, positions: Mapping[str, int]) -> bool:
        """Whether every topic was read up to the ends."""
        return all(positions.get(topic, 0) >= end for topic, end in self.ends.items())


def closable(taken_us: int, rules: ClosingRules) -> int:
    """The newest minute that may close by the clock, minutes since 1970 UTC."""
    return int((taken_us - rules.settle_s * 1_000_000) // 60_000_000) - 1
