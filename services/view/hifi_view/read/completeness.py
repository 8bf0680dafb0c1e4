"""The time until which all accepted events are in a view, from the progress of the services before it. Pure.

A cut begins with the ends of `raw`, read after a time T: all events acknowledged before T lie below them. Once the
group of the first service has committed up to these ends, its whole output for them is in its topic, so the ends of
that topic, read afterwards, bound it; and so on up to the topic that a view reads. A view that has read up to the last
ends has every event that was acknowledged before T.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

_MAX_CUTS: Final = 64
"""Cuts on their way; none begins above this number, so that a service that stands still costs no memory."""

Offsets = Mapping[int, int]
"""Partition to offset. A partition without an entry has the offset 0."""


class Cut(NamedTuple):
    """Ends of a topic below which every event lies that was acknowledged before a time."""

    time_us: int
    """Microseconds since 1970 UTC."""
    end_offsets: Offsets


def reaches(offsets: Offsets, end_offsets: Offsets) -> bool:
    """Whether each partition has been read up to its end."""
    return all(offsets.get(partition, 0) >= end for partition, end in end_offsets.items())


class Cuts:
    """Cuts on their way through the services before a view.

    Args:
        services: number of them: 0 for a view of `raw`.
    """

    def __init__(self, services: int) -> None:
        self._waiting_cuts: list[deque[Cut]] = [deque() for _ in range(services)]
        self._passed_cuts: list[Cut] = []

    def begin(self, time_us: int, end_offsets: Offsets) -> None:
        """Begin a cut: `end_offsets` of `raw` were read after `time_us`."""
        if not self._waiting_cuts:
            self._passed_cuts.append(Cut(time_us, end_offsets))
        elif sum(map(len, self._waiting_cuts)) < _MAX_CUTS:
            self._waiting_cuts[0].append(Cut(time_us, end_offsets))

    def advance(self, service: int, committed: Offsets, end_offsets: Offsets) -> None:
        """Move cuts past a service.

        Args:
            service: number of the service, from 0.
            committed: by its group, in the topic that it reads.
            end_offsets: of the topic that it writes, read after `committed`.
        """
        waiting_cuts = self._waiting_cuts[service]
        passed_cut = None
        while waiting_cuts and reaches(committed, waiting_cuts[0].end_offsets):
            passed_cut = waiting_cuts.popleft()
        if passed_cut is None:
            return  # the last of several cuts replaces those that passed with it
        cut = Cut(passed_cut.time_us, end_offsets)
        if service + 1 < len(self._waiting_cuts):
            self._waiting_cuts[service + 1].append(cut)
        else:
            self._passed_cuts.append(cut)

    def take(self) -> list[Cut]:
        """The cuts that have passed all services since the last call."""
        passed_cuts, self._passed_cuts = self._passed_cuts, []
        return passed_cuts


class CompleteUntil:
    """The newest time until which a view is complete."""

    def __init__(self) -> None:
        self.time_us: int | None = None
        """Microseconds since 1970 UTC; it never goes back but to None: not known."""
        self._cuts: deque[Cut] = deque()

    def add(self, cut: Cut) -> None:
        """Add a cut of the topic that the view reads."""
        if len(self._cuts) < _MAX_CUTS:
            self._cuts.append(cut)

    def reached(self, positions: Offsets) -> bool:
        """Update the time from the positions of the view; returns whether it changed."""
        previous_time_us = self.time_us
        while self._cuts and reaches(positions, self._cuts[0].end_offsets):
            self.time_us = max(self._cuts.popleft().time_us, self.time_us or 0)
        return self.time_us != previous_time_us

    def forget(self) -> None:
        """Start again: the view is empty, or the clock was set back."""
        self.time_us = None
        self._cuts.clear()
