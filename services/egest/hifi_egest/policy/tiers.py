"""Choose the retry topic in which a delivery waits. Pure."""

from collections.abc import Sequence

from hifi.kafka.topics import Tier


def by_pass(passes: int, tiers: Sequence[Tier]) -> Tier:
    """The tier after a number of retry passes: each pass waits longer; the last tier repeats."""
    return tiers[min(passes, len(tiers) - 1)]


def within(wait_s: float, tiers: Sequence[Tier]) -> Tier:
    """The largest tier whose delay is not above a requested wait (seconds), else the smallest tier.

    A delivery that returns before its due time makes another pass for the rest of the wait.
    """
    return next((tier for tier in reversed(tiers) if tier.delay_s <= wait_s), tiers[0])
