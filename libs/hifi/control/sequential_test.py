"""Whether a candidate fails more often than what it replaces, decided while the events come in. Pure.

The test may be looked at after every event without becoming less reliable: for each look it multiplies a likelihood
ratio into an e-value, which under "not worse" exceeds `1 / error` with a probability of at most `error`, however often
and however long one looks (Ville's inequality). Each ratio compares Fisher's noncentral hypergeometric distributions
of the candidate's failures among all failures of the look, so nothing is assumed about the failure rate itself, and a
rate that changes for both at once (a slow broker, a bad hour of a destination) is no evidence against the candidate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TOLERATED_ODDS: Final = 1.1
"""Odds of failure, relative to the baseline, that still count as equal."""
_ALTERNATIVES: Final = (1.5, 2.5, 5.0, 20.0, 200.0)
"""Relative odds of failure that the test looks for; evidence is the mean over them."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Events that were judged, and how many of them failed.

    Raises:
        ValueError: more failures than events, or a negative number.
    """

    events: int = 0
    failures: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.failures <= self.events:
            raise ValueError(f"{self.failures} failures of {self.events} events")

    def __add__(self, other: "Outcomes") -> "Outcomes":
        return Outcomes(self.events + other.events, self.failures + other.failures)

    @property
    def rate(self) -> float:
        """Share that failed; 0 without events."""
        return self.failures / self.events if self.events else 0.0


class SequentialTest:
    """Evidence that a candidate fails more often than its baseline.

    Args:
        error: bound on the probability of calling an equal or better candidate worse, over all looks.
    """

    def __init__(self, error: float) -> None:
        self._log_bound = -math.log(error)
        self._log_ratios = [0.0] * len(_ALTERNATIVES)
        self.candidate = Outcomes()
        """All outcomes so far."""
        self.baseline = Outcomes()
        """All outcomes so far."""

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the e-value."""
        return _log_sum(self._log_ratios) - math.log(len(self._log_ratios))

    @property
    def worse(self) -> bool:
        """Whether the evidence suffices. It stays so only until outcomes speak against it: act on the first True."""
        return self.log_evidence >= self._log_bound

    def look(self, candidate: Outcomes, baseline: Outcomes) -> bool:
        """Take in the outcomes since the last look; returns `worse`.

        Without baseline outcomes in this look (the candidate has all the traffic) the candidate is compared with an
        upper bound of the rate that the baseline had before.
        """
        if candidate.events and baseline.events:
            self._compare(candidate, baseline)
        elif candidate.events and self.baseline.events:
            self._compare_with_memory(candidate)
        self.candidate += candidate
        self.baseline += baseline
        return self.worse

    def _compare(self, candidate: Outcomes, baseline: Outcomes) -> None:
        failures = candidate.failures + baseline.failures
        if failures == 0 or failures == candidate.events + baseline.events:
            return
        lowest_count = max(0, failures - baseline.events)
        weights = [
            _log_binomial(candidate.events, count) + _log_binomial(baseline.events, failures - count)
            for count in range(lowest_count, min(failures, candidate.events) + 1)
        ]
        reference_total = _log_total(weights, lowest_count, TOLERATED_ODDS)
        for index, odds in enumerate(_ALTERNATIVES):
            gain = candidate.failures * math.log(odds / TOLERATED_ODDS)
            self._log_ratios[index] += gain + reference_total - _log_total(weights, lowest_count, odds)

    def _compare_with_memory(self, candidate: Outcomes) -> None:
        assumed_rate = _with_odds(_upper_bound(self.baseline), TOLERATED_ODDS)
        successes = candidate.events - candidate.failures
        for index, odds in enumerate(_ALTERNATIVES):
            worse_rate = _with_odds(assumed_rate, odds / TOLERATED_ODDS)
            self._log_ratios[index] += candidate.failures * math.log(worse_rate / assumed_rate)
            self._log_ratios[index] += successes * (math.log1p(-worse_rate) - math.log1p(-assumed_rate))


def _log_total(weights: Sequence[float], lowest_count: int, odds: float) -> float:
    """Logarithm of the normalizing sum of the noncentral hypergeometric distribution."""
    log_odds = math.log(odds)
    return _log_sum([weight + (lowest_count + index) * log_odds for index, weight in enumerate(weights)])


def _log_binomial(size: int, count: int) -> float:
    return math.lgamma(size + 1) - math.lgamma(count + 1) - math.lgamma(size - count + 1)


def _log_sum(logs: Sequence[float]) -> float:
    largest_log = max(logs)
    return largest_log + math.log(sum(math.exp(log - largest_log) for log in logs))


def _upper_bound(outcomes: Outcomes) -> float:
    """Upper confidence bound of a failure rate (Wilson's score with a continuity correction), below 1."""
    z = 3.0902  # exceeded with a probability of 0.001
    rate = min(1.0, (outcomes.failures + 0.5) / outcomes.events)
    middle = rate + z * z / (2 * outcomes.events)
    spread = z * math.sqrt(rate * (1 - rate) / outcomes.events + z * z / (4 * outcomes.events**2))
    return min(0.999, (middle + spread) / (1 + z * z / outcomes.events))


def _with_odds(probability: float, factor: float) -> float:
    """The probability whose odds are `factor` times those of another."""
    odds = probability / (1 - probability) * factor
    return odds / (1 + odds)
