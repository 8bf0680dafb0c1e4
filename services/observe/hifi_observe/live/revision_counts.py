"""Add up what all partition numbers published of the revisions of pipes with a rollout. Pure."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from hifi.control.revision_figures import RevisionFigures, RolloutFigures
from hifi_observe.ledger.recent_activity import LATE

_KINDS: Final = {
    "raw": "accepted",
    "delivered": "delivered",
    "filtered": "filtered",
    "dead-event": "dead_letters",
    "dead-delivery": "dead_letters",
    "to-retry": "retries",
    LATE: "late",
}
"""Kind of stage to the figure that its records count for."""


class RevisionCounts:
    """Figures by pipe and revision, from the counts that each partition number publishes since its start.

    A partition number that is read by another instance from now on begins to count again; the sum does not fall then.
    """

    def __init__(self) -> None:
        self._pipes: dict[str, RolloutFigures] = {}
        self._last_figures: dict[tuple[int, str, int], RevisionFigures] = {}
        """Partition number, pipe and revision to what was published last."""
        self._partitions: dict[tuple[int, str], int] = {}
        """Partition number and pipe to the time of the last figures, microseconds since 1970 UTC."""

    def get(self, pipe: str) -> RolloutFigures | None:
        """The figures of a pipe; None if it has no rollout."""
        return self._pipes.get(pipe)

    def step(self, live: Mapping[int, Mapping[str, Any]], rolling: Collection[str], now_us: int) -> None:
        """Add what was published since the last step.

        Args:
            live: partition number to its newest momentary figures.
            rolling: pipes with a rollout; others are forgotten.
            now_us: microseconds since 1970 UTC.
        """
        for pipe in [counted_pipe for counted_pipe in self._pipes if counted_pipe not in rolling]:
            del self._pipes[pipe]
            self._last_figures = {
                key: published_figures
                for key, published_figures in self._last_figures.items()
                if key[1] != pipe
            }
            self._partitions = {key: at_us for key, at_us in self._partitions.items() if key[1] != pipe}
        for pipe in rolling:
            self._pipes.setdefault(pipe, RolloutFigures(now_us))
            for partition, partition_figures in live.items():
                if self._partitions.get((partition, pipe)) != partition_figures["at"]:
                    self._add(partition, pipe, partition_figures.get("revisions", {}).get(pipe, {}))
                    self._partitions[partition, pipe] = partition_figures["at"]

    def _add(self, partition: int, pipe: str, counts_by_revision: Mapping[str, Mapping[str, int]]) -> None:
        figures = self._pipes[pipe]
        revisions = dict(figures.revisions)
        is_first = (partition, pipe) not in self._partitions
        for number, counts in counts_by_revision.items():
            revision, current = int(number), _figures(counts)
            previous_figures = self._last_figures.get((partition, pipe, revision))
            self._last_figures[partition, pipe, revision] = current
            if previous_figures is None and is_first:
                continue  # it may have counted for hours
            added_figures = current.since(previous_figures) if previous_figures is not None else current
            revisions[revision] = revisions.get(revision, RevisionFigures()) + added_figures
        self._pipes[pipe] = RolloutFigures(figures.since_us, revisions)


def _figures(counts: Mapping[str, int]) -> RevisionFigures:
    totals = dict.fromkeys(_KINDS.values(), 0)
    for kind, number in counts.items():
        if kind in _KINDS:
            totals[_KINDS[kind]] += number
    return RevisionFigures(**totals)
