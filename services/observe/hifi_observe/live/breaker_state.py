"""Merge the breaker reports of all partition numbers into the state of a destination's circuit breaker. Pure.

Parse the published rows, merge the reports of each instance, then choose the current report of each partition number:
if an instance closed its breaker on one partition, it is not open on another.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from typing_extensions import TypedDict

from hifi_observe.ledger.breaker_reports import CLOSED, HALF_OPEN, OPEN, PAUSED, BreakerReport, load_reports

UNKNOWN: Final = "unknown"


BreakerStateName = Literal["open", "paused", "half-open", "closed", "unknown"]
"""`open` if any instance's breaker is, else `paused` if the destination asked one to pause (Retry-After), else
`half-open`, else `closed`; `unknown` before the first report."""


class BreakerView(TypedDict):
    """The circuit breaker, as reported by the newest receipts; see docs/observe.md."""

    state: BreakerStateName
    since_ms: Annotated[int | None, Field(description="Time since when it has not been closed.")]
    answer: Annotated[
        str | None,
        Field(
            description="The newest failed response while it is not closed: a status or an error (`timeout`)."
        ),
    ]
    seen_ms: Annotated[int | None, Field(description="Time of the last receipt that reported this state.")]
    open_partitions: Annotated[int, Field(description="Number of partitions on which it is not closed.")]
    partitions: Annotated[int, Field(description="Number of partitions with a report.")]


def breaker_state(published_rows: Iterable[list[list[Any]]]) -> BreakerView:
    """A destination's circuit breaker over all partition numbers.

    Args:
        published_rows: what `BreakerReports.dump` returned, for each partition number with receipts of the destination.
    """
    partitions = [load_reports(rows) for rows in published_rows if rows]
    if not partitions:
        return {
            "state": UNKNOWN, "since_ms": None, "answer": None, "seen_ms": None,
            "open_partitions": 0, "partitions": 0,
        }  # fmt: skip
    current_reports = _current(partitions, _by_instance(partitions))
    not_closed = [report for report in current_reports if report.state != CLOSED]
    return {
        "state": _worst(not_closed),
        "since_ms": min((report.since_ms for report in not_closed), default=None),
        "answer": _answer(not_closed, partitions),
        "seen_ms": max(report.at_ms for report in not_closed or current_reports),
        "open_partitions": len(not_closed),
        "partitions": len(partitions),
    }


def _by_instance(partitions: list[dict[str, BreakerReport]]) -> dict[str, BreakerReport]:
    """The reports on each named instance, merged over partition numbers."""
    merged: dict[str, BreakerReport] = {}
    for reports in partitions:
        for instance, report in reports.items():
            if instance:
                earlier = merged.get(instance)
                merged[instance] = report if earlier is None else _merge(earlier, report)
    return merged


def _current(
    partitions: list[dict[str, BreakerReport]], by_instance: dict[str, BreakerReport]
) -> list[BreakerReport]:
    """The newest report of each partition number; a report that names no instance counts for its partition alone."""
    newest = (next(reversed(reports.items())) for reports in partitions)
    return [by_instance.get(instance, report) for instance, report in newest]


def _worst(not_closed: list[BreakerReport]) -> BreakerStateName:
    if not not_closed:
        return CLOSED
    states = {report.state for report in not_closed}
    if OPEN in states:
        return OPEN
    return PAUSED if PAUSED in states else HALF_OPEN


def _answer(not_closed: list[BreakerReport], partitions: list[dict[str, BreakerReport]]) -> str | None:
    """The last failing answer; if the open breakers have none, one from before their instance was named."""
    if not not_closed:
        return None
    answered_reports = [report for report in not_closed if report.answer]
    answered_reports = answered_reports or [
        report for reports in partitions for report in reports.values() if report.answer
    ]
    return max(answered_reports, key=_answer_ms).answer if answered_reports else None


def _merge(first_report: BreakerReport, second_report: BreakerReport) -> BreakerReport:
    """The reports of two partition numbers on the same instance as one."""
    newer_report = max(first_report, second_report, key=lambda report: report.at_ms)
    closed_ms = max(first_report.closed_ms, second_report.closed_ms)
    open_since_ms = [
        report.since_ms for report in (first_report, second_report) if report.since_ms > closed_ms
    ]
    last_answered = max(first_report, second_report, key=_answer_ms)
    return BreakerReport(
        newer_report.state,
        newer_report.at_ms,
        min(open_since_ms, default=0 if newer_report.state == CLOSED else closed_ms),
        closed_ms,
        last_answered.answer,
        last_answered.answer_ms,
    )


def _answer_ms(report: BreakerReport) -> int:
    return report.answer_ms
