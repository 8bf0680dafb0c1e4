"""The progress of sources, which collect reports in its ack reports. Pure."""

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict


@with_config(ConfigDict(strict=True))
class SourceReport(TypedDict):
    """The progress of a source, over the source partitions that one instance of collect reads."""

    backfill: bool
    """Whether the reader catches up."""
    done: int
    """Events that were read, counted from the first that the source has."""
    remaining: int
    """Events that are in the source and not read yet."""
    read_per_s: float
    arriving_per_s: float
    limit_per_s: float
    """Rate of the backfill at the moment."""
    late: str
    """The cause that slows the backfill: the stage that is late, or `scarce CPU`; empty: nothing."""
    held_bytes: int
    """Bytes that the source keeps for hifi until they are read, such as the log of a replication slot; 0: unknown."""
    held: str
    """A description of the data that the source keeps, if that is more than it should be; empty: it is not."""
    notice: str
    """A warning for people about the rows of the source; empty: none."""


def seconds_left(report: SourceReport) -> float | None:
    """Estimated time until nothing remains, seconds; None: what remains does not get less."""
    if not report["remaining"]:
        return 0.0
    gained_per_s = report["read_per_s"] - report["arriving_per_s"]
    return report["remaining"] / gained_per_s if gained_per_s > 0 else None


def add_up(reports: list[SourceReport]) -> SourceReport:
    """The progress of a source over the instances that read it.

    Args:
        reports: of the instances, at least one.
    """
    return SourceReport(
        backfill=any(report["backfill"] for report in reports),
        done=sum(report["done"] for report in reports),
        remaining=sum(report["remaining"] for report in reports),
        read_per_s=sum(report["read_per_s"] for report in reports),
        arriving_per_s=sum(report["arriving_per_s"] for report in reports),
        limit_per_s=sum(report["limit_per_s"] for report in reports),
        late=next((report["late"] for report in reports if report["late"]), ""),
        held_bytes=max(report["held_bytes"] for report in reports),
        held=next((report["held"] for report in reports if report["held"]), ""),
        notice=next((report["notice"] for report in reports if report["notice"]), ""),
    )
