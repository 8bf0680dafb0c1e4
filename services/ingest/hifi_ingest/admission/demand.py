"""What is offered per second, and how a capacity is shared by those who offer more than it. Pure."""

import math
from collections.abc import Collection
from typing import Final

_WEIGHT: Final = 0.8
"""Weight of the latest period in the rate."""
_SIZE_WEIGHT: Final = 0.1


class Demand:
    """Events or bytes per second that senders offer, accepted or refused."""

    __slots__ = ("_amount", "_size", "per_s")

    def __init__(self) -> None:
        self.per_s = 0.0
        """As of the last period."""
        self._amount = 0.0
        self._size = 0.0

    def add(self, amount: float) -> None:
        """Count a request whose size is known."""
        self._amount += amount
        self._size = self._size + (amount - self._size) * _SIZE_WEIGHT if self._size else amount

    def add_unread(self) -> None:
        """Count a request that was refused before it was read, with the mean size of the others."""
        self._amount += self._size

    def end_period(self, span_s: float) -> None:
        """Update the rate and start a new period.

        Args:
            span_s: length of the period, seconds, above 0.
        """
        rate = self._amount / span_s
        self.per_s = self.per_s + (rate - self.per_s) * _WEIGHT if self.per_s else rate
        self._amount = 0.0


def fair_share(capacity: float, demands: Collection[float]) -> float:
    """The max-min fair share: whoever demands less than it gets everything, the others get exactly it.

    Args:
        capacity: to share.
        demands: of each, in the unit of the capacity.

    Returns:
        The share; infinite if all demands fit.
    """
    left = capacity
    waiting = len(demands)
    for demand in sorted(demands):
        share = left / waiting
        if demand > share:
            return share
        left -= demand
        waiting -= 1
    return math.inf
