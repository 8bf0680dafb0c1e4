"""Which answers of brokers about the ends of topics count. Pure.

A broker that stood still may answer as the leader that it no longer is, with an end before records that the new leader
has acknowledged. It stood still for as long as Kafka takes to replace it, so the answer that was under way is late:
neither it counts, nor what follows until the broker must have learned of its replacement.
"""

from typing import Final

from hifi.runtime.clock import MICROSECONDS

_LATE_US: Final = 4 * MICROSECONDS
"""Less than Kafka waits before it replaces a silent broker (9 s)."""
_QUIET_US: Final = 10 * MICROSECONDS


class LateAnswers:
    """Answers to requests that are sent one after another."""

    def __init__(self) -> None:
        self._quiet_until_us = 0

    def counts(self, asked_us: int, answered_us: int) -> bool:
        """Whether an answer counts; times by the monotonic clock."""
        if answered_us - asked_us > _LATE_US:
            self._quiet_until_us = answered_us + _QUIET_US
        return answered_us >= self._quiet_until_us
