"""The records of a fetched batch by pipe, minute, stages, epoch and revision: what `grouping` makes of them."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from hifi_observe.ledger.breaker_reports import NO_ANSWER, ReceiptAnswer
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.stage import EventStage


class ConsumedRecord(Protocol):
    """A record as any Kafka client returns it."""

    @property
    def offset(self) -> int:
        """Its offset."""

    @property
    def timestamp(self) -> int:
        """Append time, milliseconds since 1970 UTC."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """Name and value."""

    @property
    def value(self) -> bytes | None:
        """Used in the topic `accepted`; of `raw` only its size."""


class RecordTimes:
    """Times of the records of a group, one list a time; microseconds since 1970 UTC unless the name says otherwise."""

    __slots__ = (
        "accepted_us",
        "answered_us",
        "append_ms",
        "event_times",
        "identities",
        "in_us",
        "malformed",
        "sent_us",
    )

    def __init__(self) -> None:
        self.identities: list[bytes] = []
        """The header `hifi`, which is the same on every topic."""
        self.append_ms: list[int] = []
        """Append time, milliseconds since 1970 UTC."""
        self.accepted_us: list[int] = []
        self.event_times: list[bytes | None] = []
        """The header `ce_time`; None where there is none."""
        self.in_us: list[int] = []
        self.sent_us: list[int] = []
        """Of deliveries only, else empty; `answered_us` too."""
        self.answered_us: list[int] = []
        self.malformed = False
        """Whether a time of any record is missing or malformed: that record has -1."""

    def extend(self, times: "RecordTimes") -> None:
        """Add the records of another group."""
        self.identities += times.identities
        self.append_ms += times.append_ms
        self.accepted_us += times.accepted_us
        self.event_times += times.event_times
        self.in_us += times.in_us
        self.sent_us += times.sent_us
        self.answered_us += times.answered_us
        self.malformed = self.malformed or times.malformed

    def mark_malformed(self, delivery: bool) -> None:
        """Complete the row of the last record, one of whose times cannot be read, so that it is not measured."""
        rows = len(self.identities)
        self.malformed = True
        del self.in_us[rows - 1 :], self.sent_us[rows - 1 :], self.answered_us[rows - 1 :]
        self.in_us.append(-1)
        if delivery:
            self.sent_us.append(-1)
            self.answered_us.append(-1)

    def complete(self) -> "RecordTimes":
        """The records of which no time is missing or malformed."""
        complete_times = RecordTimes()
        for index, in_us in enumerate(self.in_us):
            if in_us < 0:
                continue
            complete_times.identities.append(self.identities[index])
            complete_times.append_ms.append(self.append_ms[index])
            complete_times.accepted_us.append(self.accepted_us[index])
            complete_times.event_times.append(self.event_times[index])
            complete_times.in_us.append(in_us)
            if self.sent_us:
                complete_times.sent_us.append(self.sent_us[index])
                complete_times.answered_us.append(self.answered_us[index])
        return complete_times

    def drop_first(self, number: int) -> None:
        """Remove the first records."""
        del self.identities[:number], self.append_ms[:number], self.accepted_us[:number]
        del self.event_times[:number], self.in_us[:number], self.sent_us[:number], self.answered_us[:number]


class RecordGroup:
    """Records of a batch that show the same stages of events of one epoch, revision, pipe and minute. Offsets ascend.

    Receipts of a group have the same answer, too.
    """

    __slots__ = (
        "answer",
        "backfill",
        "counted_offset",
        "epoch",
        "offsets",
        "pipe_minute",
        "replayed",
        "revision",
        "sequences",
        "sizes",
        "stages",
        "times",
        "watched",
    )

    def __init__(
        self,
        stages: tuple[EventStage, ...],
        epoch: str,
        answer: ReceiptAnswer = NO_ANSWER,
        *,
        measured: bool = False,
    ) -> None:
        self.stages = stages
        self.epoch = epoch
        self.answer = answer
        """Of receipts; empty for all other records."""
        self.revision = 0
        """The pipe's revision that the events have."""
        self.backfill = False
        """Whether the events are backfill of a source; then they are not measured."""
        self.offsets: list[int] = []
        self.sequences: list[int] = []
        self.sizes: list[int] = []
        """Bytes of the data, one row an offset; of `raw` only, else empty."""
        self.times: RecordTimes | None = RecordTimes() if measured else None
        """One row for each offset; None if these records are not measured."""
        self.watched: list[bytes] = []
        """Buckets of the watched fields (`hifi.record.headers.WATCH`), one row an offset; empty: none is watched."""
        self.replayed: list[tuple[int, int]] = []
        """Offset and sequence of replayed dead letters; they are not among the offsets above."""
        self.pipe_minute: PipeMinute | None = None
        """Set by `bind`; None until then, and for minutes that are no longer amended."""
        self.counted_offset = -1
        """Set by `bind`: records below this offset were counted before a restart."""

    @property
    def last_counts(self) -> bool:
        """Whether the last of these receipts tells about the destination all that they tell together."""
        return self.stages[0].kind == "delivered" and self.answer.breaker[:6] in (b"", b"closed")

    def passed(self, committed: int) -> list[int]:
        """Sequences of the records below a committed offset."""
        if not self.offsets or self.offsets[0] >= committed:
            return []
        return self.sequences[: bisect_left(self.offsets, committed)]

    def bind(self, pipe_minute: PipeMinute, counted_offset: int) -> None:
        """Set the minute that the records belong to, and remove those that were counted before a restart."""
        self.pipe_minute, self.counted_offset = pipe_minute, counted_offset
        if self.offsets and self.offsets[0] < counted_offset:
            counted_rows = bisect_left(self.offsets, counted_offset)
            del self.offsets[:counted_rows], self.sequences[:counted_rows], self.watched[:counted_rows]
            del self.sizes[:counted_rows]
            if self.times is not None:
                self.times.drop_first(counted_rows)

    def replayed_deliveries(self) -> list[int]:
        """Sequences of replayed dead letters that were delivered."""
        if not self.replayed or self.stages[0].kind != "delivered":
            return []
        return [sequence for offset, sequence in self.replayed if offset >= self.counted_offset]


class MinuteRecords:
    """The groups of a batch that belong to one pipe and minute."""

    __slots__ = ("first_offset", "groups", "minute", "pipe")

    def __init__(self, pipe: str, minute: int, first_offset: int) -> None:
        self.pipe = pipe
        self.minute = minute
        self.first_offset = first_offset
        """Offset of the first record, replayed or not."""
        self.groups: list[RecordGroup] = []


class RecordColumns:
    """The records of a batch in offset order, one list a field."""

    __slots__ = ("append_ms", "groups", "offsets", "raw_offsets", "sequences", "sole_group")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.append_ms: list[int] = []
        self.sequences: list[int] = []
        self.groups: list[RecordGroup] = []
        self.raw_offsets: list[int] = []
        """Offsets in `raw`; of `normalized` and `dead-letter` only, else empty."""
        self.sole_group: RecordGroup | None = None
        """The group of all records, where the batch has one only, which is usual; None: it has several, or none."""

    def distinct_groups(self) -> set[RecordGroup]:
        """The groups of the records."""
        return set(self.groups) if self.sole_group is None else {self.sole_group}

    def without_discarded(self) -> "RecordColumns":
        """The records whose group has a minute; self if that is all of them."""
        if all(group.pipe_minute is not None for group in self.distinct_groups()):
            return self
        indexes = [index for index, group in enumerate(self.groups) if group.pipe_minute is not None]
        columns = RecordColumns()
        columns.offsets = [self.offsets[index] for index in indexes]
        columns.append_ms = [self.append_ms[index] for index in indexes]
        columns.sequences = [self.sequences[index] for index in indexes]
        columns.groups = [self.groups[index] for index in indexes]
        if self.raw_offsets:
            columns.raw_offsets = [self.raw_offsets[index] for index in indexes]
        return columns


class RecordBatch:
    """The records of a batch, grouped by `grouping.group_records`."""

    __slots__ = ("columns", "foreign", "last_raw_offset", "minutes")

    def __init__(self) -> None:
        self.minutes: dict[tuple[bytes, bytes], MinuteRecords] = {}
        """By pipe and minute, as in the header `hifi`."""
        self.columns = RecordColumns()
        """The records at or above the committed offset."""
        self.foreign = 0
        """Records without the headers of hifi."""
        self.last_raw_offset = -1
        """Of `enriched`: the offset in `raw` of the last record that is no replay; -1: unknown."""


def enrich_progress(columns: RecordColumns) -> int:
    """The highest offset in `raw` among dead letters that enrich wrote; -1: none."""
    enrich_stage = EventStage("dead-event", "enrich")
    raw_offsets = (
        raw_offset
        for raw_offset, group in zip(columns.raw_offsets, columns.groups, strict=True)
        if group.stages[0] == enrich_stage
    )
    return max(raw_offsets, default=-1)
