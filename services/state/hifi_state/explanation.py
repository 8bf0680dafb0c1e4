"""Computes anew what a step makes of events, as `hifi step explain` shows it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from hifi.record.headers import REPLAY, SERVICE, Headers
from hifi.record.hop import hop
from hifi.record.identity import Identity, identity
from hifi.record.step_account import FOLDED
from hifi.runtime.errors import NotAnEvent
from hifi.spark.catalyst import Catalyst
from hifi_state.fold.dead_letters import NOT_REFUSED
from hifi_state.fold.declaration import StepDeclaration
from hifi_state.fold.judged_events import FoldRules
from hifi_state.fold.key_limit import KeyLimit
from hifi_state.fold.progress import Progress, Restart, raised, up_to_restarts
from hifi_state.fold.range_folder import FoldedRange, RangeFolder

_SCHEMA: Final = (
    "partition int, offset bigint, key binary, value binary, headers array<struct<key string, value binary>>"
)
UNREAD: Final = "unread"
"""Of an event that the step has not read yet."""
READ_BEFORE: Final = "read-before"
"""Of an event that does not count, and that another declaration of the step has read, which may have counted it."""


class EnrichedRecord(NamedTuple):
    """A record of `enriched`."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class ExplainedEvent(NamedTuple):
    """An event, and what becomes of it.

    Attributes:
        partition: of `enriched`.
        offset: there.
        event: identity.
        time_ms: of the event, milliseconds since 1970 UTC.
        verdict: `folded`, `copy`, `left-out` (by `where`), `unread`, `read-before`, or the reason of its dead letter.
        windows: start and end of those that it counts in, milliseconds since 1970 UTC; empty for
            sessions, `each`, `first` and `join`.
    """

    partition: int
    offset: int
    event: str
    time_ms: int
    verdict: str
    windows: Sequence[tuple[int, int]]


class StepExplainer:
    """Explains events by the declaration with which a step has read last."""

    def __init__(self, catalyst: Catalyst, pipe: str, progress: Progress) -> None:
        """Compile the declaration.

        Args:
            catalyst: of any Spark session.
            pipe: of the step.
            progress: of the step, from `folds`.

        Raises:
            SqlProblem: this Spark rejects an expression.
        """
        self._spark = catalyst.spark
        self._progress = progress
        declaration = StepDeclaration.of_text(progress.step)
        self._window = declaration.step.window
        self._most_events, self._length_ms = declaration.step.most_events, declaration.step.length_ms
        self._folder = RangeFolder(catalyst, pipe, declaration, "explain")

    def explain(
        self, earlier: Sequence[EnrichedRecord], records: Sequence[EnrichedRecord]
    ) -> list[ExplainedEvent]:
        """The events among records that follow each other in each partition, by partition and offset.

        Args:
            earlier: records before them, which tell copies, and which events are beyond the limit of a key.
            records: to explain.
        """
        events: list[ExplainedEvent] = []
        for part in parts_from_restarts(records, self._progress.restarts):
            events += self._explained(earlier, part)
            earlier = [*earlier, *part]
        return sorted(events, key=lambda event: event[:2])

    def _explained(
        self, earlier: Sequence[EnrichedRecord], records: Sequence[EnrichedRecord]
    ) -> list[ExplainedEvent]:
        limit = (
            None if self._most_events is None else KeyLimit(self._most_events, self._length_ms, lambda _: 0)
        )
        if limit is not None and earlier:
            self._folded(earlier, {}, limit).release()
        raws = raws_at(records[0], self._raws(earlier), self._progress.restarts)
        folded = self._folded(records, raws, limit)
        try:
            return [
                ExplainedEvent(
                    partition,
                    offset,
                    seq,
                    time_ms,
                    self._verdict(partition, offset, verdict),
                    self._windows(time_ms) if verdict == FOLDED else (),
                )
                for partition, offset, seq, time_ms, verdict in folded.verdicts()
            ]
        finally:
            folded.release()

    def _folded(
        self, records: Sequence[EnrichedRecord], raws: Mapping[int, int], limit: KeyLimit | None
    ) -> FoldedRange:
        """The records, judged.

        Args:
            records: that follow each other.
            raws: partition to the highest offset in `raw` before.
            limit: has counted what is before; None: the step has none.
        """
        frame = record_frame(self._spark, records)
        partitions = max((record.partition for record in records), default=0) + 1
        rules = FoldRules(partitions, raws, None, judged=self._progress.judged)
        folded = self._folder.fold(frame, rules, keeps_events=True)
        try:
            if limit is not None:
                folded.rows(limit)
        except BaseException:
            folded.release()
            raise
        return folded

    def _raws(self, records: Iterable[EnrichedRecord]) -> Mapping[int, int]:
        """Partition to the highest offset in `raw`; as `RangeFolder` reads it."""
        raws: Mapping[int, int] = {}
        for record, _ in events_of(self._progress.pipes, records):
            values, raw = dict(reversed(record.headers)), hop(record.headers).raw
            is_replay = values.get(REPLAY) not in (None, b"0") and values.get(SERVICE) != b"normalize"
            raws = raws_at(record, raws, self._progress.restarts)
            if not is_replay and raw >= 0:
                raws = raised(raws, {record.partition: raw})
        return raws

    def _verdict(self, partition: int, offset: int, verdict: str) -> str:
        if offset >= self._progress.offsets.get(partition, 0):
            return UNREAD
        is_earlier = offset < self._progress.since.get(partition, 0)
        return READ_BEFORE if is_earlier and verdict not in NOT_REFUSED else verdict

    def _windows(self, time_ms: int) -> list[tuple[int, int]]:
        if self._window is None or not self._window.every_ms:
            return []
        every_ms, size_ms = self._window.every_ms, self._window.size_ms
        last_ms = time_ms - time_ms % every_ms
        return [
            (start_ms, start_ms + size_ms)
            for start_ms in range(last_ms - size_ms + every_ms, last_ms + 1, every_ms)
        ]


def parts_from_restarts(
    records: Sequence[EnrichedRecord], restarts: Iterable[Restart]
) -> Iterator[Sequence[EnrichedRecord]]:
    """The records in parts, in which `raw` restarts nowhere but at the first one."""
    places = set(restarts)
    begins = [
        0,
        *(
            index
            for index, record in enumerate(records)
            if index and Restart(record.partition, record.offset) in places
        ),
    ]
    for begin, end in zip(begins, [*begins[1:], len(records)], strict=True):
        if begin < end:
            yield records[begin:end]


def raws_at(
    record: EnrichedRecord, raws: Mapping[int, int], restarts: Iterable[Restart]
) -> Mapping[int, int]:
    """`FoldRules.raws` of a range whose first record this is.

    Args:
        record: the first one.
        raws: partition to the highest offset in `raw` before.
        restarts: of `raw`.
    """
    return up_to_restarts({record.partition: record.offset}, {}, raws, restarts)[1]


def record_frame(spark: SparkSession, records: Iterable[EnrichedRecord]) -> DataFrame:
    """Records as `RangeFolder` reads them."""
    return spark.createDataFrame([tuple(record) for record in records], _SCHEMA)


def events_of(
    pipes: Collection[str], records: Iterable[EnrichedRecord]
) -> Iterator[tuple[EnrichedRecord, Identity]]:
    """The records that are events of any of some pipes, with their identities."""
    for record in records:
        try:
            event = identity(record.headers)
            hop(record.headers)
        except NotAnEvent:
            continue
        if event.pipe in pipes:
            yield record, event
