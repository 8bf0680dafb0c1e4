"""Which retry topic a delivery waits in: pure."""

from collections.abc import Sequence

from hifi.topics import Tier


def by_pass(passes: int, tiers: Sequence[Tier]) -> Tier:
    """The tier after so many trips through the retrier: each trip waits longer, the last tier again and again."""
    return tiers[min(passes, len(tiers) - 1)]


def within(wait_s: float, tiers: Sequence[Tier]) -> Tier:
    """The largest tier not above a wait that the destination asked for, seconds; else the smallest.

    A delivery that comes back too early goes round again for the rest.
    """
    return next((tier for tier in reversed(tiers) if tier.delay_s <= wait_s), tiers[0])
