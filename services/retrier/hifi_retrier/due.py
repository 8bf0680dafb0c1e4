"""When a waiting delivery is due: pure."""

import math
from collections.abc import Sequence
from typing import Final

from hifi.clock import MICROSECONDS
from hifi.topics import Tier

_TURN_S: Final = 0.25
_TURNS_A_DELAY: Final = 20


def due_s(appended_ms: int, delay_s: float, now_us: int, monotonic_s: float) -> float:
    """The moment, on the monotonic clock, at which a record is due.

    It is the append time plus the delay, but never later than the delay from now: if the wall clock of this machine
    or of the broker was set back, nothing waits for longer than its delay once more.

    Args:
        appended_ms: Kafka's append time of the record, milliseconds since 1970 UTC.
        delay_s: of the tier, seconds.
        now_us: wall time at the fetch, microseconds since 1970 UTC.
        monotonic_s: the monotonic clock at the same moment, seconds.
    """
    wait_s = appended_ms / 1000 + delay_s - now_us / MICROSECONDS
    return monotonic_s + min(max(0.0, wait_s), delay_s)


def turn_s(tiers: Sequence[Tier]) -> float:
    """How far apart the moments are at which deliveries are brought back, seconds.

    What is due between two of them goes at the second one, from all partitions in one request: each by itself would
    cost everybody else more than it is worth after such a delay. A twentieth of the shortest delay at most.
    """
    return min([_TURN_S, *(tier.delay_s / _TURNS_A_DELAY for tier in tiers)])


def next_turn_s(when_s: float, now_s: float, turn_s: float) -> float:
    """The first such moment that is not before `when_s`; what is late already, as a backlog is, waits for none.

    Args:
        when_s: of the monotonic clock, seconds.
        now_s: of the same.
        turn_s: how far apart they are, seconds; 0: every moment is one.
    """
    return math.ceil(when_s / turn_s) * turn_s if when_s > now_s and turn_s else when_s
