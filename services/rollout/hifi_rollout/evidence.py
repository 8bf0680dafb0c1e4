"""Whether a revision does worse than the one before, from the figures of both since a rollout began. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hifi.control.revision_figures import RevisionFigures, RolloutFigures
from hifi.control.sequential_test import Outcomes, SequentialTest


@dataclass(frozen=True, slots=True)
class _Measure:
    """One way in which a revision can be worse."""

    name: str
    """In a sentence: `NAME: 5.0 % of 200, with the revision before 0.1 % of 1,800`."""
    outcomes: Callable[[RevisionFigures], Outcomes]


_MEASURES: Final = (
    _Measure("dead letters", lambda seen: _outcomes(seen.ended, seen.dead_letters)),
    _Measure(
        "failed attempts to deliver", lambda seen: _outcomes(seen.delivered + seen.retries, seen.retries)
    ),
    _Measure("deliveries later than the SLO", lambda seen: _outcomes(seen.delivered, seen.late)),
)


class Evidence:
    """Compares two revisions as their figures rise.

    Args:
        error: bound on the probability of finding an equal revision worse, however often and long one looks.
    """

    def __init__(self, error: float) -> None:
        self._tests = [SequentialTest(error / len(_MEASURES)) for _ in _MEASURES]
        self._last: RolloutFigures | None = None

    def look(self, figures: RolloutFigures, candidate: int, baseline: int) -> str:
        """Take in the figures as they are now.

        Args:
            figures: of the pipe's revisions.
            candidate: the new revision.
            baseline: the revision before.

        Returns:
            In what the candidate is worse, a sentence; empty: nothing is known against it.
        """
        last, self._last = self._last, figures
        if last is None or last.since_us != figures.since_us:
            return ""  # there is nothing to subtract what was counted before
        new = figures.of(candidate).since(last.of(candidate))
        old = figures.of(baseline).since(last.of(baseline))
        worse = [
            _sentence(measure.name, test)
            for measure, test in zip(_MEASURES, self._tests, strict=True)
            if test.look(measure.outcomes(new), measure.outcomes(old))
        ]
        return "; ".join(worse)


def _outcomes(events: int, failures: int) -> Outcomes:
    """Counts are read while they change, so there may be a failure whose event is not counted yet."""
    return Outcomes(events, min(events, failures))


def _sentence(name: str, test: SequentialTest) -> str:
    new, old = test.candidate, test.baseline
    return (
        f"{name}: {new.rate:.1%} of {new.events:,}, with the revision before {old.rate:.1%} of {old.events:,}"
    )
