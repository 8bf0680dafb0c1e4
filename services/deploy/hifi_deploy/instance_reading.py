"""Figures that are read from one instance at one time. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstanceReading:
    """Figures of one instance; counters begin at 0 with each process.

    Attributes:
        name: as in `normalize-2`.
        release: that it runs.
        ready: whether it takes part in the work.
        ready_after_s: seconds from the start of its process until it was ready; None: it was not ready yet.
        restarts: how often it ended by itself and was started again since it has this release.
        cpu_s: CPU time so far, seconds; None: unknown.
        rss_bytes: resident memory; None: unknown.
        events: records read, or of ingest events accepted; None: its metrics could not be read.
        dead_letters: dead letters written.
        failures: deliveries that failed.
        lag_s: age of the work that waits in its partitions, seconds; None: unknown, or it has no partitions.
        partitions: assigned to it.
    """

    name: str
    release: str
    ready: bool
    ready_after_s: float | None
    restarts: int
    cpu_s: float | None
    rss_bytes: int | None
    events: int | None = None
    dead_letters: int = 0
    failures: int = 0
    lag_s: float | None = None
    partitions: int = 0
