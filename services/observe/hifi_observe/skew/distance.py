"""The distance of two distributions: the Jensen-Shannon distance, less what chance explains. Pure.

Lin, Divergence measures based on the Shannon entropy, IEEE Transactions on Information Theory 37(1), 1991. The distance
is the root of the divergence in bits: 0 for equal shares, 1 for distributions that have no bucket in common. It is
defined where a bucket is empty, which the population stability index is not.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

_DEVIATIONS = 4.0
"""Standard deviations of chance that a difference must exceed to be significant."""


class Difference(NamedTuple):
    """The difference of two distributions."""

    distance: float
    """Jensen-Shannon distance, less the part that two samples of one distribution are expected to have; 0 to 1."""
    significant: bool
    """Whether the difference is larger than two samples of one distribution have by chance."""


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Compare two distributions.

    Args:
        first: events of each bucket.
        second: events of the same buckets.
    """
    first_events, second_events = sum(first), sum(second)
    if not first_events or not second_events:
        return Difference(0.0, significant=False)
    divergence = _divergence(
        [events / first_events for events in first], [events / second_events for events in second]
    )
    freedom = sum(map(any, zip(first, second, strict=True))) - 1
    # 8 ln 2 JSD n m / (n + m) of two samples of one distribution has a chi-squared distribution.
    scale = (1 / first_events + 1 / second_events) / (8 * math.log(2))
    excess = max(0.0, divergence - freedom * scale)
    significant = excess > _DEVIATIONS * math.sqrt(2 * freedom) * scale
    return Difference(math.sqrt(excess), significant)


def _divergence(first: Sequence[float], second: Sequence[float]) -> float:
    """The Jensen-Shannon divergence of shares, bits."""
    total = 0.0
    for first_share, second_share in zip(first, second, strict=True):
        mean = (first_share + second_share) / 2
        total += sum(share * math.log2(share / mean) / 2 for share in (first_share, second_share) if share)
    return total
