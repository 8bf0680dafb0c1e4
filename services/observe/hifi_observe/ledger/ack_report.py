"""Parse ack reports: what ingest and collect accepted, as records of the topic `accepted`, one a second."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from hifi.delivery.source_report import SourceReport
from hifi.runtime.errors import NotAnEvent

_MOST_EVENTS: Final = 100_000_000
"""Events that an ack report of a second may name: each costs memory until its minute closes."""
_MOST_COUNTED: Final = 10**15


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
            (str(pipe), _number(minute), _number(first_sequence), _number(last_sequence))
            for pipe, minutes in body.get("pipes", {}).items()
            for minute, spans in minutes.items()
            for first_sequence, last_sequence in spans
        )
        if (
            sum(max(0, last_sequence - first_sequence + 1) for _, _, first_sequence, last_sequence in ranges)
            > _MOST_EVENTS
        ):
            raise ValueError(f"more than {_MOST_EVENTS:,} events")
        answers = {str(status): _count(count) for status, count in (body.get("answers") or {}).items()}
        paused = {str(pipe): _count(count) for pipe, count in (body.get("paused") or {}).items()}
        of_ingest = body.get("service", "ingest") == "ingest"
        deleted = tuple(
            (str(pipe), str(partition), _number(first_sequence), _number(last_sequence))
            for pipe, partition, first_sequence, last_sequence in body.get("deleted") or ()
        )
        sources = {str(pipe): _source(report) for pipe, report in (body.get("sources") or {}).items()}
        is_closed = bool(body.get("closed"))
        release = str(body.get("release") or "")
        return AckReport(
            str(body["epoch"]), ranges, is_closed, answers, paused, of_ingest, deleted, sources, release
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise NotAnEvent(f"not an ack report: {error!r}") from None


def _number(value: Any) -> int:
    """A minute, sequence or offset, of 63 bits.

    Raises:
        ValueError: it is none.
    """
    number = int(value)
    if not 0 <= number < 2**63:
        raise ValueError(f"{number} has no 63 bits")
    return number


def _count(value: Any) -> int:
    """A number of answers, records or bytes, which may be added up.

    Raises:
        ValueError: it is none.
    """
    number = int(value)
    if abs(number) > _MOST_COUNTED:
        raise ValueError(f"{number} is more than {_MOST_COUNTED:,}")
    return number


def _rate(value: Any) -> float:
    """Records per second.

    Raises:
        ValueError: it is none.
    """
    rate = float(value)
    if not abs(rate) <= _MOST_COUNTED:
        raise ValueError(f"{rate} is no rate")
    return rate


def _source(report: Mapping[str, Any]) -> SourceReport:
    """A report of a source; what a later release adds to it is skipped."""
    return SourceReport(
        backfill=bool(report["backfill"]),
        done=_count(report["done"]),
        remaining=_count(report["remaining"]),
        read_per_s=_rate(report["read_per_s"]),
        arriving_per_s=_rate(report["arriving_per_s"]),
        limit_per_s=_rate(report["limit_per_s"]),
        late=str(report["late"]),
        held_bytes=_count(report.get("held_bytes", 0)),
        held=str(report.get("held", "")),
        notice=str(report.get("notice", "")),
    )
