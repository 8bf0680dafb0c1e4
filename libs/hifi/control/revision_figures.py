"""Outcomes of the events of each revision of a pipe, counted by observe while a rollout runs. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class RevisionFigures:
    """Numbers of one revision since observe began to count it; they never fall.

    Attributes:
        accepted: events that ingest accepted.
        delivered: deliveries.
        filtered: events and deliveries that the pipe's filters dropped.
        dead_letters: events and deliveries that became dead letters.
        retries: deliveries that failed and went to the retrier, each time.
        late: deliveries that took longer than the pipe's SLO allows.
    """

    accepted: int = 0
    delivered: int = 0
    filtered: int = 0
    dead_letters: int = 0
    retries: int = 0
    late: int = 0

    @property
    def ended(self) -> int:
        """Events and deliveries with a final outcome."""
        return self.delivered + self.filtered + self.dead_letters

    def __add__(self, other: "RevisionFigures") -> "RevisionFigures":
        return RevisionFigures(*(getattr(self, name) + getattr(other, name) for name in _NAMES))

    def since(self, earlier_figures: "RevisionFigures") -> "RevisionFigures":
        """The figures that were counted after `earlier_figures`."""
        return RevisionFigures(
            *(max(0, getattr(self, name) - getattr(earlier_figures, name)) for name in _NAMES)
        )


_NAMES = tuple(figure.name for figure in fields(RevisionFigures))


@dataclass(frozen=True, slots=True)
class RolloutFigures:
    """Figures of the revisions of a pipe with a rollout.

    Attributes:
        since_us: when the count began, microseconds since 1970 UTC. Figures with another beginning are another count.
        revisions: revision to its figures.
    """

    since_us: int
    revisions: Mapping[int, RevisionFigures] = field(default_factory=dict)

    def of(self, revision: int) -> RevisionFigures:
        """The figures of a revision; zeros if nothing of it was counted."""
        return self.revisions.get(revision, RevisionFigures())

    def json(self) -> dict[str, Any]:
        """JSON, with the revisions' numbers as text."""
        return {
            "since_us": self.since_us,
            "revisions": {str(number): asdict(figures) for number, figures in sorted(self.revisions.items())},
        }


def load(body: Mapping[str, Any]) -> RolloutFigures:
    """Read what `RolloutFigures.json` returned; fields of later releases are skipped.

    Raises:
        KeyError, TypeError, ValueError: it is something else.
    """
    return RolloutFigures(
        int(body["since_us"]),
        {
            int(number): RevisionFigures(**{name: int(figures[name]) for name in _NAMES if name in figures})
            for number, figures in body["revisions"].items()
        },
    )
