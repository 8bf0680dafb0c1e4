"""Which rate to try next. Pure."""

import math
from dataclasses import dataclass, field
from typing import Final

CLOSE: Final = 1.12
"""The search ends when what failed is less than this factor above what held."""
DEEPEST: Final = 32
"""A search that begins too high goes down to this part of its first rate."""


@dataclass(slots=True)
class RateSearch:
    """Climbs by a factor until a rate fails, then halves the distance (as a ratio) between held and failed.

    Where the first rate fails it climbs down until one holds. A rate has failed when it failed twice in a row: a
    machine's other work, or a compiler's, takes a second now and then, and all rates above are given up for it. Once
    the search is close, the lowest rate that failed is tried for the last time: where a warmer mesh holds it by now,
    the search goes on above.

    Attributes:
        first: the first rate, events a second.
        factor: from one rung to the next, above 1.
        most_tries: rates to try at most.
    """

    first: float
    factor: float
    most_tries: int = 20
    held: float | None = None
    """The highest rate that held so far."""
    _failures: set[float] = field(default_factory=set, init=False)
    _sure: bool = field(default=False, init=False)
    """The lowest rate that failed did so when it was tried for the last time, too."""
    _tries: int = field(default=0, init=False)
    _again: float | None = field(default=None, init=False)
    """The rate that failed once."""

    @property
    def failed(self) -> float | None:
        """The lowest rate that failed so far and has not held since."""
        return min(self._failures, default=None)

    def next(self) -> float | None:
        """The rate to try; None: the search is over."""
        if self._tries >= self.most_tries:
            return None
        return self._again or self._new()

    def _new(self) -> float | None:
        if self.held is None:
            if self.failed is None:
                return self.first
            lower = self.failed / self.factor
            return lower if lower >= self.first / DEEPEST else None
        if self.failed is None:
            return self.held * self.factor
        if self.failed / self.held <= CLOSE:
            return None if self._sure else self.failed
        return math.sqrt(self.held * self.failed)

    def took(self, rate: float, *, held: bool) -> None:
        """Note what came of a rate."""
        self._tries += 1
        if held:
            self.held = max(rate, self.held or 0)
            self._failures.discard(rate)
        elif rate in self._failures:
            self._sure = True
        elif rate != self._again:
            self._again = rate
            return
        else:
            self._failures.add(rate)
        self._again = None
