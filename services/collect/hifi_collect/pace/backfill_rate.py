"""The rate of a source's backfill: the declared one, less while the mesh is under pressure. Pure.

As TCP does it: a late stage takes away a share of the rate, and calm adds a fixed part of it with each reading.
"""

from typing import Final

START: Final = 0.25
"""Share of the rate at which a backfill begins."""
LEAST: Final = 0.02
"""Share of the rate that remains at any lag of the mesh."""
LEAST_OF_CPU: Final = 0.2
"""Share of the rate that remains if only CPU time is scarce: other programs may be the cause."""
CPU: Final = "scarce CPU"
_DECREASE: Final = 0.7
_DECREASE_OF_CPU: Final = 0.9
_INCREASE: Final = 0.05
"""Share of the rate that is added with each reading without a late stage."""
_LEAST_PER_S: Final = 1.0


class BackfillRate:
    """The events per second that all readers of one source may take together."""

    def __init__(self, declared_per_s: float) -> None:
        """Begin slowly.

        Args:
            declared_per_s: the largest rate that the pipe declares.
        """
        self._declared_per_s = declared_per_s
        self._share = START
        self.late = ""
        """The stage that is late, or `CPU`; empty: none."""

    @property
    def per_s(self) -> float:
        """The present rate, events per second."""
        return max(_LEAST_PER_S, self._declared_per_s * self._share)

    def update(self, late_stage: str) -> None:
        """Adjust the rate to a reading of the mesh.

        Args:
            late_stage: name of the stage that is late, or `CPU`; empty: none.
        """
        self.late = late_stage
        if late_stage == CPU:
            raised_share = min(self._share + _INCREASE, LEAST_OF_CPU)
            self._share = max(raised_share, self._share * _DECREASE_OF_CPU)
        elif late_stage:
            self._share = max(LEAST, self._share * _DECREASE)
        else:
            self._share = min(1.0, self._share + _INCREASE)

    def restart(self) -> None:
        """A new backfill begins."""
        self._share, self.late = START, ""
