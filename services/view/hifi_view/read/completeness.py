"""Until when everything that was accepted is in a view, or with the services before it. Pure.

A cut begins with the ends of `raw`, read after a time T: everything acknowledged before T lies below them. Once the
group of the first service has committed up to these ends, its whole output for them is in its topic, so the ends of
that topic, read afterwards, bound it; and so on up to the topic that a view reads. A view that has read up to the last
ends has every event that was acknowledged before T.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

_MOST: Final = 64
"""Cuts on their way; without room none begins, so that a service that stands still costs no memory."""

Offsets = Mapping[int, int]
"""By partition. A partition without an entry stands at 0."""


class Cut(NamedTuple):
    """Ends of a topic below which every event lies that was acknowledged before a time."""

    time_us: int
    """Microseconds since 1970 UTC."""
    ends: Offsets


def reaches(offsets: Offsets, ends: Offsets) -> bool:
    """Whether each partition has been read up to its end."""
    return all(offsets.get(partition, 0) >= end for partition, end in ends.items())


class Cuts:
    """Cuts on their way through the services before a view.

    Args:
        services: number of them: 0 for a view of `raw`.
    """

    def __init__(self, services: int) -> None:
        self._waiting: list[deque[Cut]] = [deque() for _ in range(services)]
        self._done: list[Cut] = []

    def begin(self, time_us: int, ends: Offsets) -> None:
        """Begin a cut: `ends` of `raw` were read after `time_us`."""
        if not self._waiting:
            self._done.append(Cut(time_us, ends))
        elif sum(map(len, self._waiting)) < _MOST:
            self._waiting[0].append(Cut(time_us, ends))

    def advance(self, service: int, committed: Offsets, ends: Offsets) -> None:
        """Move cuts past a service.

        Args:
            service: number of the service, from 0.
            committed: by its group, in the topic that it reads.
            ends: of the topic that it writes, read after `committed`.
        """
        waiting = self._waiting[service]
        passed = None
        while waiting and reaches(committed, waiting[0].ends):
            passed = waiting.popleft()
        if passed is None:
            return  # a later cut says more than those that passed with it
        cut = Cut(passed.time_us, ends)
        if service + 1 < len(self._waiting):
            self._waiting[service + 1].append(cut)
        else:
            self._done.append(cut)

    def take(self) -> list[Cut]:
        """The cuts that have passed all services since the last call."""
        done, self._done = self._done, []
        return done


class CompleteUntil:
    """The newest time until which a view is complete."""

    def __init__(self) -> None:
        self.time_us: int | None = None
        """Microseconds since 1970 UTC; it never goes back. None: not known yet."""
        self._cuts: deque[Cut] = deque()

    def add(self, cut: Cut) -> None:
        """Take in a cut of the topic that the view reads."""
        if len(self._cuts) < _MOST:
            self._cuts.append(cut)

    def reached(self, positions: Offsets) -> bool:
        """Take in how far the view has read; whether the time changed."""
        before = self.time_us
        while self._cuts and reaches(positions, self._cuts[0].ends):
            self.time_us = max(self._cuts.popleft().time_us, self.time_us or 0)
        return self.time_us != before

    def forget(self) -> None:
        """Begin anew: the view is empty again."""
        self.time_us = None
        self._cuts.clear()
