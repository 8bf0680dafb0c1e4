"""Growing waits between the attempts of a call that failed."""

from collections.abc import Sequence
from typing import Final

BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
"""For requests to Kafka: soon again after the first failures, then every second."""


def backoff_s(failures: int, delays_s: Sequence[float] = BACKOFF_S) -> float:
    """The wait before the next attempt, seconds.

    Args:
        failures: attempts that failed before this one, from 0; the last delay is used for all later ones.
        delays_s: ascending, seconds.
    """
    return delays_s[min(failures, len(delays_s) - 1)]
