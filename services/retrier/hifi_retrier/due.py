"""The due time of a waiting delivery, and the round that brings it back. Pure."""

import math
from collections.abc import Sequence
from typing import Final

from hifi.kafka.topics import Tier
from hifi.runtime.clock import MICROSECONDS

_ROUND_S: Final = 0.25
_ROUNDS_A_DELAY: Final = 20


def due_s(appended_ms: int, delay_s: float, now_us: int, monotonic_s: float) -> float:
    """The time on the monotonic clock at which a record is due: its append time plus the tier's delay.

    It is at most the delay from now. So if the wall clock of this machine or of the broker was set back, a record waits
    for its delay once more at most.

    Args:
        appended_ms: Kafka's append time of the record, milliseconds since 1970 UTC.
        delay_s: of the tier, seconds.
        now_us: wall time at the fetch, microseconds since 1970 UTC.
        monotonic_s: the monotonic clock at the same time, seconds.
    """
    wait_s = appended_ms / 1000 + delay_s - now_us / MICROSECONDS
    return monotonic_s + min(max(0.0, wait_s), delay_s)


def round_interval_s(tiers: Sequence[Tier]) -> float:
    """Time between two rounds in which deliveries are brought back, seconds: at most 1/20 of the shortest delay.

    Records of all partitions that became due since the last round go to Kafka in one request. One request a record
    would cost other services more than the precision is worth after such a delay.
    """
    return min([_ROUND_S, *(tier.delay_s / _ROUNDS_A_DELAY for tier in tiers)])


def next_round_s(due_s: float, now_s: float, interval_s: float) -> float:
    """The first round that is not before `due_s`; overdue records wait for no round.

    Args:
        due_s: on the monotonic clock, seconds.
        now_s: on the same clock, seconds.
        interval_s: between two rounds, seconds; 0: no rounds.
    """
    return math.ceil(due_s / interval_s) * interval_s if due_s > now_s and interval_s else due_s
