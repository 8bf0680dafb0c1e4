"""Decides when both colours share the requests since one alone would not carry them, and when one does again. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class BurstAction(StrEnum):
    """What the splitter does."""

    NOTHING = "nothing"
    SPLIT = "split"
    """Half of the requests for each colour."""
    JOIN = "join"
    """All requests for one colour again."""


@dataclass(frozen=True, slots=True)
class BurstPolicy:
    """Limits by which requests are split and joined.

    Attributes:
        above_per_s: events per second, over both colours, above which they are split.
        join_ratio: they are joined when the rate was at or below this share of `above_per_s`. Below 1, so that requests
            that were joined are not split again at the same rate.
        split_after_s: the rate was too high for this long, seconds.
        join_after_s: the rate was low for this long, seconds. Longer, since each change moves keys between colours.
    """

    above_per_s: float
    join_ratio: float = 0.7
    split_after_s: float = 10.0
    join_after_s: float = 120.0


@dataclass(frozen=True, slots=True)
class RateSample:
    """Events per second at one time, monotonic, seconds; None: not known."""

    at_s: float
    per_s: float | None


def decide(policy: BurstPolicy, samples: Sequence[RateSample], *, split: bool) -> BurstAction:
    """What to do now.

    A rate that is not known counts as neither high nor low: the shares stay.

    Args:
        policy: of the split.
        samples: oldest first; the last one is of now.
        split: whether requests are split because of a burst.
    """
    if split:
        join_rate = policy.above_per_s * policy.join_ratio
        is_over = _held_for(samples, policy.join_after_s, lambda rate: rate <= join_rate)
        return BurstAction.JOIN if is_over else BurstAction.NOTHING
    is_high = _held_for(samples, policy.split_after_s, lambda rate: rate > policy.above_per_s)
    return BurstAction.SPLIT if is_high else BurstAction.NOTHING


def _held_for(samples: Sequence[RateSample], for_s: float, condition: Callable[[float], bool]) -> bool:
    """Whether a condition held of all samples of the last `for_s` seconds."""
    for sample in reversed(samples):
        if sample.per_s is None or not condition(sample.per_s):
            return False
        if samples[-1].at_s - sample.at_s >= for_s:
            return True
    return False
