"""Progress of the event times of one partition, by pipe, and the events that are late. Pure.

Before observe states that everything with an earlier event time is settled, it raises the floor of each partition to
that time. Events that are read afterwards with a time below the floor are late: the statement does not cover them, and
they are counted and named. So no event is missing from a statement because of when instances learn of it.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from hifi_observe.ledger.durations import event_times_us
from hifi_observe.ledger.record_batch import RecordGroup

_LATE_EVENTS: Final = 1000
"""Late events of a pipe that are kept."""
UNKNOWN_US: Final = 0
"""The time of an open event whose event time is not known."""
NEVER_US: Final = 2**62


class LateArrival(NamedTuple):
    """An event whose event time had been stated as settled when it arrived."""

    appended_us: int
    """Append time in `raw`, microseconds since 1970 UTC."""
    by_us: int
    """Distance of its event time below the floor."""
    identity: str
    """`<epoch>:<sequence>`, as the field `hifi_seq`."""


class ReadTimes(NamedTuple):
    """Event times that were read of a group."""

    oldest_us: int
    """The lowest event time of those that are not late; `NEVER_US`: all are late."""
    late: list[int]
    """Sequences of the late events."""


class EventTimes:
    """Event times of one partition, by pipe. A time after the acceptance of its event counts as that."""

    def __init__(self) -> None:
        self.newest_us: dict[str, int] = {}
        """Pipe to the highest event time that was read."""
        self.floor_us: dict[str, int] = {}
        """Pipe to the time below which events that are read from now on are late."""
        self.late: defaultdict[str, deque[LateArrival]] = defaultdict(lambda: deque(maxlen=_LATE_EVENTS))
        """Pipe to its newest late events."""

    def raise_floor(self, pipe: str, floor_us: int) -> None:
        """Promise that every event that is read from now on with an earlier event time counts as late."""
        if floor_us > self.floor_us.get(pipe, 0):
            self.floor_us[pipe] = floor_us

    def read(
        self, pipe: str, group: RecordGroup, indexes: range, since_us: int, is_copy: Callable[[int], bool]
    ) -> ReadTimes:
        """Take in events of `raw`.

        Args:
            pipe: of the events.
            group: of the events; without times (backfill) their event times are unknown.
            indexes: of the events in the group, without gaps.
            since_us: none of them was acknowledged before; 0: unknown, as of those read again after a restart, which
                are not late.
            is_copy: whether the event of a sequence was read before; then it is not late either.
        """
        if group.times is None:
            return ReadTimes(UNKNOWN_US, [])
        rows = slice(indexes.start, indexes.stop)
        accepted_us = group.times.accepted_us[rows]
        times_us = list(map(min, event_times_us(group.times.event_times[rows], accepted_us), accepted_us))
        newest_us, oldest_us = max(times_us), min(times_us)
        if newest_us > self.newest_us.get(pipe, 0):
            self.newest_us[pipe] = newest_us
        floor_us = self.floor_us.get(pipe, 0)
        if oldest_us >= floor_us or not since_us:
            return ReadTimes(max(oldest_us, UNKNOWN_US), [])
        oldest_us = NEVER_US
        late_arrivals: dict[int, LateArrival] = {}
        for index, time_us in zip(indexes, times_us, strict=True):
            sequence = group.sequences[index]
            if sequence in late_arrivals:
                continue
            if time_us >= floor_us or is_copy(sequence):
                oldest_us = min(oldest_us, time_us)
                continue
            appended_us, identity = group.times.append_ms[index] * 1000, f"{group.epoch}:{sequence}"
            late_arrivals[sequence] = LateArrival(appended_us, floor_us - time_us, identity)
        self.late[pipe].extend(late_arrivals.values())
        return ReadTimes(max(oldest_us, UNKNOWN_US), list(late_arrivals))
