"""Distributions of durations that can be merged: DDSketch (Masson, Rim, Lee, VLDB 2019, doi 10.14778/3352063.3352135).

Sparse, because most minutes of most pipes have few events. docs/decisions/sketches.md: why not the package `ddsketch`.
"""
# ruff: noqa: SLF001 - another one of the same class

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

RELATIVE_ERROR: Final = 0.01
"""Maximum relative error of a quantile."""
_GAMMA: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_LOG: Final = 1 / math.log(_GAMMA)
_PENDING: Final = 1024
_LONGEST_US: Final = 100 * 365 * 86_400_000_000
"""Durations up to 100 years are counted by binary search: events that were stored for years have such lags."""
_MOST_US: Final = 10**18
"""Above what two timestamps can be apart: 31,700 years."""
_MOST_EXACT_US: Final = 2**63 - 1
"""The largest whole number in JSON here. The times 9999 and 0001 of 37 and 289 events add up to more."""


def _key(value: int) -> int:
    """Bin of a whole number of microseconds, in the order of the values: 0 for 0, negative for negative ones."""
    if value > 0:
        return math.ceil(math.log(value) * _PER_LOG) + 1
    return 0 if value == 0 else -(math.ceil(math.log(-value) * _PER_LOG) + 1)


def _bounds(longest_us: int) -> list[int]:
    """Largest value of each bin (of an empty bin: of the bins before), for values from 0 to about `longest_us`."""
    bounds, bound = [0], 1.0
    while bounds[-1] < longest_us:
        value = int(bound)
        while _key(value + 1) <= len(bounds):
            value += 1
        while _key(value) > len(bounds):
            value -= 1
        bounds.append(value)
        bound *= _GAMMA
    return bounds


_BOUNDS: Final = _bounds(_LONGEST_US)


def _value(key: int) -> float:
    if key > 0:
        return 2 * _GAMMA ** (key - 1) / (_GAMMA + 1)
    return 0.0 if key == 0 else -2 * _GAMMA ** (-key - 1) / (_GAMMA + 1)


class Sketch:
    """Counts, sum and extremes are exact; quantiles have `RELATIVE_ERROR`. Values are whole microseconds.

    A sum of more than 63 bits is rounded, and a value beyond 31,700 years, forward or back, counts as that.
    """

    __slots__ = ("_bins", "_count", "_max", "_min", "_pending", "_sum")

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self._pending: list[int] = []
        self._count = 0
        self._sum: int | float = 0
        self._min = 0
        self._max = 0

    def add(self, value_us: int) -> None:
        """Add one value."""
        self._pending.append(value_us)
        if len(self._pending) >= _PENDING:
            self.flush()

    def extend(self, values_us: Iterable[int]) -> None:
        """Add values."""
        self._pending.extend(values_us)
        if len(self._pending) >= _PENDING:
            self.flush()

    def add_many(self, value_us: int, times: int) -> None:
        """Add the same value several times."""
        if times > 0:
            sketch = Sketch()
            value_us = min(max(value_us, -_MOST_US), _MOST_US)
            sketch._bins[_key(value_us)] = times
            sketch._count, sketch._sum, sketch._min, sketch._max = times, value_us * times, value_us, value_us
            self.merge(sketch)

    def flush(self) -> None:
        """Move pending values into the bins."""
        values = self._pending
        if not values:
            return
        values.sort()
        low, high = values[0], values[-1]
        if low < -_MOST_US or high > _MOST_US:
            values = [min(max(value, -_MOST_US), _MOST_US) for value in values]
            low, high = values[0], values[-1]
        self._min = low if self._count == 0 else min(self._min, low)
        self._max = high if self._count == 0 else max(self._max, high)
        self._count += len(values)
        self._sum += sum(values)
        start = bisect_left(values, 0) if low < 0 else 0
        end = len(values) if high <= _BOUNDS[-1] else bisect_right(values, _BOUNDS[-1])
        self._bins.update(map(_key, values[:start] + values[end:]))
        self._count_sorted(values, start, end)
        self._pending = []

    def _count_sorted(self, values: list[int], start: int, stop: int) -> None:
        """Add ascending values, from 0 to the highest bound: two binary searches a bin cost less than one a value."""
        bins = self._bins
        while start < stop:
            key = bisect_left(_BOUNDS, values[start])
            end = bisect_right(values, _BOUNDS[key], start, stop)
            bins[key] += end - start
            start = end

    def merge(self, other: "Sketch") -> None:
        """Add everything of another sketch."""
        self.flush()
        other.flush()
        if other._count == 0:
            return
        self._min = other._min if self._count == 0 else min(self._min, other._min)
        self._max = other._max if self._count == 0 else max(self._max, other._max)
        self._count += other._count
        self._sum += other._sum
        self._bins.update(other._bins)

    def __len__(self) -> int:
        return self._count + len(self._pending)

    @property
    def mean_us(self) -> float:
        """Exact mean, microseconds; 0 when empty."""
        self.flush()
        return self._sum / self._count if self._count else 0.0

    @property
    def max_us(self) -> int:
        """Exact maximum, microseconds; 0 when empty."""
        self.flush()
        return self._max

    @property
    def sum_us(self) -> int | float:
        """Exact sum, microseconds; one of more than 63 bits is rounded."""
        self.flush()
        return self._sum if -_MOST_EXACT_US <= self._sum <= _MOST_EXACT_US else float(self._sum)

    def above(self, limit_us: int) -> int:
        """Number of values above a limit; those within `RELATIVE_ERROR` of it may count either way."""
        self.flush()
        limit_key = _key(limit_us)
        return sum(count for key, count in self._bins.items() if key > limit_key)

    def quantile_us(self, share: float) -> float:
        """The value of rank `share` x (count - 1), rounded down, microseconds; 0 when empty."""
        self.flush()
        rank, cumulative_count = share * (self._count - 1), 0
        for key in sorted(self._bins):
            cumulative_count += self._bins[key]
            if cumulative_count > rank:
                return min(max(_value(key), self._min), self._max)
        return float(self._max)

    def copy(self) -> "Sketch":
        """An independent copy."""
        sketch = Sketch()
        sketch.merge(self)
        return sketch

    def dump(self) -> dict[str, Any]:
        """JSON: bins as ascending key differences and counts."""
        self.flush()
        keys = sorted(self._bins)
        steps = [keys[0], *(after - before for before, after in itertools.pairwise(keys))] if keys else []
        return {
            "k": steps,
            "c": [self._bins[key] for key in keys],
            "sum": self.sum_us,
            "min": self._min,
            "max": self._max,
        }

    @classmethod
    def load(cls, dump: dict[str, Any]) -> "Sketch":
        """Restore what `dump` returned."""
        sketch = cls()
        key = 0
        for step, count in zip(dump["k"], dump["c"], strict=True):
            key += step
            sketch._bins[key] = count
        sketch._count = sum(dump["c"])
        sketch._sum, sketch._min, sketch._max = dump["sum"], dump["min"], dump["max"]
        return sketch
