"""Choose the next rate to try. Pure."""

import math
from dataclasses import dataclass, field
from typing import Final

CLOSE: Final = 1.12
"""The search ends when the lowest failed rate is at most this factor above the highest sustained one."""
DEEPEST: Final = 32
"""If the first rate fails, the search goes down to this fraction of it."""


@dataclass(slots=True)
class RateSearch:
    """Raises the rate by a factor until one fails, then bisects (by ratio) between sustained and failed rates.

    If the first rate fails, the search goes down until one is sustained. A rate fails only after two failures in a row,
    because other work on the machine or the JIT compiler can take a second, and a failure rules out all higher rates.
    At the end the lowest failed rate is tried once more: if the mesh, now warmer, sustains it, the search continues
    above it.

    Attributes:
        first: first rate, events a second.
        factor: factor between two rates, above 1.
        max_tries: maximum number of rates to try.
    """

    first: float
    factor: float
    max_tries: int = 20
    sustained: float | None = None
    """The highest rate sustained so far."""
    _failures: set[float] = field(default_factory=set, init=False)
    _confirmed: bool = field(default=False, init=False)
    """Whether the lowest failed rate failed again when it was tried once more at the end."""
    _tries: int = field(default=0, init=False)
    _retry: float | None = field(default=None, init=False)
    """The rate that has failed once and is tried again."""

    @property
    def failed(self) -> float | None:
        """The lowest rate that failed and has not been sustained since."""
        return min(self._failures, default=None)

    def next(self) -> float | None:
        """Return the rate to try; None when the search is finished."""
        if self._tries >= self.max_tries:
            return None
        return self._retry or self._untried_rate()

    def _untried_rate(self) -> float | None:
        if self.sustained is None:
            if self.failed is None:
                return self.first
            lower_rate = self.failed / self.factor
            return lower_rate if lower_rate >= self.first / DEEPEST else None
        if self.failed is None:
            return self.sustained * self.factor
        if self.failed / self.sustained <= CLOSE:
            return None if self._confirmed else self.failed
        return math.sqrt(self.sustained * self.failed)

    def record(self, rate: float, *, sustained: bool) -> None:
        """Record whether a rate was sustained."""
        self._tries += 1
        if sustained:
            self.sustained = max(rate, self.sustained or 0)
            self._failures.discard(rate)
        elif rate in self._failures:
            self._confirmed = True
        elif rate != self._retry:
            self._retry = rate
            return
        else:
            self._failures.add(rate)
        self._retry = None
