"""Merge the breaker reports of all partition numbers into the state of a destination's circuit breaker. Pure.

Parse the published rows, merge the reports of each instance, then choose the current report of each partition number:
if an instance closed its breaker on one partition, it is not open on another.
"""

from collections.abc import Iterable
from typing import Any, Final

from hifi_observe.ledger.breaker_reports import CLOSED, HALF_OPEN, OPEN, BreakerReport, load_reports

UNKNOWN: Final = "unknown"


def breaker_state(published: Iterable[list[list[Any]]]) -> dict[str, Any]:
    """A destination's circuit breaker over all partition numbers.

    Args:
        published: what `BreakerReports.dump` returned, for each partition number with receipts of the destination.

    Returns:
        `state`: `open` if any instance's is, else `half-open`, else `closed`; `unknown` before the first report.
        `since_ms`, `answer`: since when it is not closed, and the failing answer; None if it is closed or unknown.
        `seen_ms`: time of the last report of that state. `open_partitions` of `partitions` with any report.
    """
    partitions = [load_reports(rows) for rows in published if rows]
    if not partitions:
        return {
            "state": UNKNOWN, "since_ms": None, "answer": None, "seen_ms": None,
            "open_partitions": 0, "partitions": 0,
        }  # fmt: skip
    current = _current(partitions, _by_instance(partitions))
    not_closed = [report for report in current if report.state != CLOSED]
    return {
        "state": _worst(not_closed),
        "since_ms": min((report.since_ms for report in not_closed), default=None),
        "answer": _answer(not_closed, partitions),
        "seen_ms": max(report.at_ms for report in not_closed or current),
        "open_partitions": len(not_closed),
        "partitions": len(partitions),
    }


def _by_instance(partitions: list[dict[str, BreakerReport]]) -> dict[str, BreakerReport]:
    """The reports on each named instance, merged over partition numbers."""
    merged: dict[str, BreakerReport] = {}
    for reports in partitions:
        for instance, report in reports.items():
            if instance:
                known = merged.get(instance)
                merged[instance] = report if known is None else _merge(known, report)
    return merged


def _current(
    partitions: list[dict[str, BreakerReport]], by_instance: dict[str, BreakerReport]
) -> list[BreakerReport]:
    """The newest report of each partition number; a report that names no instance counts for its partition alone."""
    newest = (next(reversed(reports.items())) for reports in partitions)
    return [by_instance.get(instance, report) for instance, report in newest]


def _worst(not_closed: list[BreakerReport]) -> str:
    if not not_closed:
        return CLOSED
    return OPEN if any(report.state == OPEN for report in not_closed) else HALF_OPEN


def _answer(not_closed: list[BreakerReport], partitions: list[dict[str, BreakerReport]]) -> str | None:
    """The last failing answer; if the open breakers have none, one from before their instance was named."""
    if not not_closed:
        return None
    known = [report for report in not_closed if report.answer]
    known = known or [report for reports in partitions for report in reports.values() if report.answer]
    return max(known, key=_answer_ms).answer if known else None


def _merge(one: BreakerReport, other: BreakerReport) -> BreakerReport:
    """The reports of two partition numbers on the same instance as one."""
    newer = max(one, other, key=lambda report: report.at_ms)
    closed_ms = max(one.closed_ms, other.closed_ms)
    since = [report.since_ms for report in (one, other) if report.since_ms > closed_ms]
    answered = max(one, other, key=_answer_ms)
    return BreakerReport(
        newer.state,
        newer.at_ms,
        min(since, default=0 if newer.state == CLOSED else closed_ms),
        closed_ms,
        answered.answer,
        answered.answer_ms,
    )


def _answer_ms(report: BreakerReport) -> int:
    return report.answer_ms
