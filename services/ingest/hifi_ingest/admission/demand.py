"""The rate that senders offer, and the fair share of a capacity that they exceed. Pure."""

import math
from collections.abc import Collection
from typing import Final

_WEIGHT: Final = 0.8
"""Weight of the latest period in the rate."""
_SIZE_WEIGHT: Final = 0.1


class Demand:
    """Events or bytes per second that senders offer, accepted or refused."""

    __slots__ = ("_amount", "_mean_size", "per_s")

    def __init__(self) -> None:
        self.per_s = 0.0
        """As of the last period."""
        self._amount = 0.0
        self._mean_size = 0.0

    def add(self, amount: float) -> None:
        """Count a request whose size is known."""
        self._amount += amount
        self._mean_size = (
            self._mean_size + (amount - self._mean_size) * _SIZE_WEIGHT if self._mean_size else amount
        )

    def add_unread(self) -> None:
        """Count a request that was refused before it was read, with the mean size of requests that were read."""
        self._amount += self._mean_size

    def end_period(self, span_s: float) -> None:
        """Update the rate and start a new period.

        Args:
            span_s: length of the period, seconds, above 0.
        """
        rate_per_s = self._amount / span_s
        self.per_s = self.per_s + (rate_per_s - self.per_s) * _WEIGHT if self.per_s else rate_per_s
        self._amount = 0.0


def fair_share(capacity: float, demands: Collection[float]) -> float:
    """The max-min fair share: a demand below the share is met in full, and a larger one with exactly the share.

    Args:
        capacity: to share.
        demands: in the unit of the capacity.

    Returns:
        The share; infinite if all demands fit.
    """
    remaining_capacity = capacity
    remaining_demands = len(demands)
    for demand in sorted(demands):
        share = remaining_capacity / remaining_demands
        if demand > share:
            return share
        remaining_capacity -= demand
        remaining_demands -= 1
    return math.inf
