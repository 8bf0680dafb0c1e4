"""Whether a revision does worse than the one before, from the figures of both since a rollout began. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hifi.control.revision_figures import RevisionFigures, RolloutFigures
from hifi.control.sequential_test import Outcomes, SequentialTest


@dataclass(frozen=True, slots=True)
class _Measure:
    """One measure by which a revision can be worse."""

    name: str
    """In a sentence: `NAME: 5.0 % of 200, with the revision before 0.1 % of 1,800`."""
    outcomes: Callable[[RevisionFigures], Outcomes]


_MEASURES: Final = (
    _Measure("dead letters", lambda figures: _outcomes(figures.ended, figures.dead_letters)),
    _Measure(
        "failed attempts to deliver",
        lambda figures: _outcomes(figures.delivered + figures.retries, figures.retries),
    ),
    _Measure("deliveries later than the SLO", lambda figures: _outcomes(figures.delivered, figures.late)),
)


class Evidence:
    """Compares two revisions as their figures rise.

    Args:
        error: bound on the probability of finding an equal revision worse, however often and long one looks.
    """

    def __init__(self, error: float) -> None:
        self._tests = [SequentialTest(error / len(_MEASURES)) for _ in _MEASURES]
        self._previous_figures: RolloutFigures | None = None

    def look(self, figures: RolloutFigures, candidate: int, baseline: int) -> str:
        """Take in the figures as they are now.

        Args:
            figures: of the pipe's revisions.
            candidate: the new revision.
            baseline: the revision before.

        Returns:
            The measures in which the candidate is worse, as a sentence; empty: none.
        """
        previous_figures, self._previous_figures = self._previous_figures, figures
        if previous_figures is None or previous_figures.since_us != figures.since_us:
            return ""  # there is nothing to subtract what was counted before
        new_figures = figures.of(candidate).since(previous_figures.of(candidate))
        old_figures = figures.of(baseline).since(previous_figures.of(baseline))
        sentences = [
            _sentence(measure.name, test)
            for measure, test in zip(_MEASURES, self._tests, strict=True)
            if test.look(measure.outcomes(new_figures), measure.outcomes(old_figures))
        ]
        return "; ".join(sentences)


def _outcomes(events: int, failures: int) -> Outcomes:
    """Counts are read while they change, so there may be a failure whose event is not counted yet."""
    return Outcomes(events, min(events, failures))


def _sentence(name: str, test: SequentialTest) -> str:
    candidate, baseline = test.candidate, test.baseline
    return (
        f"{name}: {candidate.rate:.1%} of {candidate.events:,},"
        f" with the revision before {baseline.rate:.1%} of {baseline.events:,}"
    )
