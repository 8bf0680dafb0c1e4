"""Parse ack reports: what ingest and collect accepted, as records of the topic `accepted`, one a second."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from hifi.delivery.source_report import SourceReport
from hifi.runtime.errors import NotAnEvent


@dataclass(frozen=True, slots=True)
class AckReport:
    """Acknowledged sequences by pipe and minute, of one epoch on one partition."""

    epoch: str
    ranges: tuple[tuple[str, int, int, int], ...] = ()
    """Pipe, minute, first and last sequence."""
    closed: bool = False
    """Whether it is the last of its epoch: ingest drained."""
    answers: dict[str, int] = field(default_factory=dict)
    """HTTP status to answers since the previous ack report, if ingest reports them; without those of `paused`."""
    paused: dict[str, int] = field(default_factory=dict)
    """Pipe to requests refused since the previous ack report because it is paused."""
    of_ingest: bool = True
    """Whether it is ingest's, and so its heartbeat."""
    deleted: tuple[tuple[str, str, int, int], ...] = ()
    """Pipe, source partition, first and last offset of records that were deleted before collect read them."""
    sources: dict[str, SourceReport] = field(default_factory=dict)
    """Pipe to the progress of its source, if collect reads it."""
    release: str = ""
    """Of hifi, that wrote it; empty: one before 0.1.0rc2."""

    @property
    def failed(self) -> int:
        """5xx answers: ingest could not accept."""
        return sum(count for status, count in self.answers.items() if status.startswith("5"))


def parse(value: bytes | None) -> AckReport:
    """Read a record's value.

    Raises:
        NotAnEvent: it is not an ack report.
    """
    try:
        body: dict[str, Any] = orjson.loads(value or b"")
        ranges = tuple(
            (str(pipe), int(minute), int(first), int(last))
            for pipe, minutes in body.get("pipes", {}).items()
            for minute, spans in minutes.items()
            for first, last in spans
        )
        answers = {str(status): int(count) for status, count in (body.get("answers") or {}).items()}
        paused = {str(pipe): int(count) for pipe, count in (body.get("paused") or {}).items()}
        of_ingest = body.get("service", "ingest") == "ingest"
        deleted = tuple(
            (str(pipe), str(partition), int(first), int(last))
            for pipe, partition, first, last in body.get("deleted") or ()
        )
        sources = {str(pipe): _source(report) for pipe, report in (body.get("sources") or {}).items()}
        is_closed = bool(body.get("closed"))
        release = str(body.get("release") or "")
        return AckReport(
            str(body["epoch"]), ranges, is_closed, answers, paused, of_ingest, deleted, sources, release
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotAnEvent(f"not an ack report: {error!r}") from None


def _source(report: Mapping[str, Any]) -> SourceReport:
    """A report of a source; what a later release adds to it is skipped."""
    return SourceReport(
        backfill=bool(report["backfill"]),
        done=int(report["done"]),
        remaining=int(report["remaining"]),
        read_per_s=float(report["read_per_s"]),
        arriving_per_s=float(report["arriving_per_s"]),
        limit_per_s=float(report["limit_per_s"]),
        late=str(report["late"]),
        held_bytes=int(report.get("held_bytes", 0)),
        held=str(report.get("held", "")),
        notice=str(report.get("notice", "")),
    )
