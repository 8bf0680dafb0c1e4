"""Folds a range of `enriched` with Spark: the parts of the windows of its events, and its dead letters."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from hifi.record.headers import SEQ
from hifi.record.spark_sql import identity_field
from hifi.record.step_account import FOLDED, NO_EVENTS, Tally
from hifi.runtime.errors import HifiError
from hifi.spark.catalyst import Catalyst
from hifi.spark.prepared_frame import PreparedFrame
from hifi.spark.range_query import RangeQuery
from hifi.spark.step_sql import FieldPart
from hifi_state.fold.dead_letters import HEARTBEAT, KEY_LIMIT, NOT_REFUSED, LetterRecord, dead_letters
from hifi_state.fold.declaration import StepDeclaration
from hifi_state.fold.event_groups import EventGroups
from hifi_state.fold.judged_events import SOURCE_COLUMNS, FoldRules, JudgedEvents, by_partition
from hifi_state.fold.key_limit import KeyLimit, event_of
from hifi_state.fold.progress import RangeSummary, lane
from hifi_state.fold.range_bound import MOST_BYTES, MOST_LETTER_BYTES
from hifi_state.fold.results import ResultEvents
from hifi_state.fold.window_row import WindowRow

SMALL_RANGE: Final = 20_000
"""Most records of a range that one task reads."""
_FEW_LETTERS: Final = 200
"""Most dead letters of a range that are held in memory."""
_ROW_BYTES: Final = 256
_ANY_BYTES: Final = 2**62
_FETCHED: Final = "`hifi.fetched`"


class RangeTooLarge(HifiError):
    """The rows of a range do not fit in memory: those of a smaller one do."""


class FoldedRange:
    """A range with its summary. Events that are kept stay in Spark's memory until it is released."""

    def __init__(
        self,
        folder: "RangeFolder",
        partitions: int,
        summary: RangeSummary,
        rows: list[WindowRow],
        events: DataFrame | None = None,
        judge_again: Callable[[int], list[LetterRecord] | None] | None = None,
        *,
        is_small: bool = True,
    ) -> None:
        """See `RangeFolder`."""
        self._folder = folder
        self._partitions = partitions
        self.summary = summary
        self._rows = rows
        self._judged_events = events
        self._judge_again = judge_again
        self._most_letters_in_memory = _FEW_LETTERS if is_small else 0
        self._beyond: list[tuple[int, int]] = []
        """Partition and offset in `raw` of the events beyond the limit."""

    def rows(self, limit: KeyLimit | None) -> list[WindowRow]:
        """The parts of each window and key, or of each event, which later results need; of sessions all.

        Args:
            limit: refuses events, in the summary and in `dead_letters`, too; None: nothing is refused.
        """
        if limit is None:
            return self._rows
        rows, beyond_rows = limit.split(self._rows)
        for row in beyond_rows:
            event = event_of(row)
            self._beyond.append((event.partition, event.raw))
            self.summary.refuse(KEY_LIMIT, event.partition, row.ending)
        return rows

    @property
    def size_bytes(self) -> int:
        """About the size of the rows."""
        events = (row.event for row in self._rows) if self._folder.keeps_data else ()
        return len(self._rows) * _ROW_BYTES + sum(len(event.data or b"") for event in events if event)

    @property
    def has_refused(self) -> bool:
        """Whether there are dead letters."""
        return self._refused_count > 0

    @property
    def letters_need_events(self) -> bool:
        """Whether only a range that keeps its events has its dead letters."""
        return bool(self._beyond) or self._refused_count > self._most_letters_in_memory

    @property
    def _refused_count(self) -> int:
        return sum(count for verdict, count in self.summary.counts.items() if verdict not in NOT_REFUSED)

    def few_letters(self, fetched_us: int) -> list[LetterRecord] | None:
        """The dead letters of a small range; None: only `dead_letters` has them, of a range that keeps its events.

        The events are judged again, and have to get the same verdicts: one that was within its budget of time may
        exceed it then.

        Args:
            fetched_us: when the range was read, microseconds since 1970 UTC.
        """
        if self._judge_again is None or self.letters_need_events:
            return None
        letters = self._judge_again(fetched_us)
        if letters is None:
            return None
        letter_tallies: dict[tuple[int, str], Tally] = {}
        for letter in letters:
            group = letter.partition, letter.verdict
            letter_tallies[group] = letter_tallies.get(group, NO_EVENTS).plus(Tally(1, letter.fingerprint))
        refused_tallies = {
            (partition, verdict): events
            for partition, verdicts in self.summary.read.items()
            for verdict, events in verdicts.items()
            if verdict not in NOT_REFUSED
        }
        return letters if letter_tallies == refused_tallies else None

    def dead_letters(self, fetched_us: int) -> DataFrame:
        """All dead letters of a range that keeps its events, see `hifi_state.fold.dead_letters`.

        Args:
            fetched_us: when the range was read, microseconds since 1970 UTC.
        """
        fetched = by_partition(fetched_us for _ in range(self._partitions))
        return dead_letters(self._decided, self._folder.pipe, self._folder.declaration.step, fetched)

    def verdicts(self) -> Iterator[tuple[int, int, str, int, str]]:
        """Partition, offset, identity, time (milliseconds since 1970 UTC) and verdict of each event."""
        rows = (
            self._decided.filter(f"`hifi.verdict` <> '{HEARTBEAT}'")
            .select("partition", "offset", sql.expr(identity_field(SEQ)), "`hifi.time`", "`hifi.verdict`")
            .orderBy("partition", "offset")
        )
        yield from map(tuple, rows.collect())

    def first_stamps(self) -> dict[int, int]:
        """`lane` to the stamp of the first record that has one."""
        rows = (
            self._events.filter("`hifi.stamp` is not null")
            .groupBy("partition", "`hifi.of_with`")
            .agg(sql.expr("min_by(`hifi.stamp`, offset)"))
            .collect()
        )
        return {
            lane(partition, of_with=of_with): stamp_ms for partition, of_with, stamp_ms in map(tuple, rows)
        }

    @property
    def _events(self) -> DataFrame:
        assert self._judged_events is not None, "the range was folded by `fold`"
        return self._judged_events

    @property
    def _decided(self) -> DataFrame:
        """The events with their verdicts, once `rows` has refused some."""
        if not self._beyond:
            return self._events
        schema = "`hifi.partition` int, `hifi.beyond` bigint"
        beyond = self._events.sparkSession.createDataFrame(self._beyond, schema)
        is_beyond = sql.expr(
            f"partition = `hifi.partition` and `hifi.raw` = `hifi.beyond` and `hifi.verdict` = '{FOLDED}'"
        )
        verdict = sql.expr(f"if(`hifi.beyond` is null, `hifi.verdict`, '{KEY_LIMIT}')")
        return self._events.join(sql.broadcast(beyond), is_beyond, "left").withColumn("hifi.verdict", verdict)

    def release(self) -> None:
        """Forget the events that are kept."""
        if self._judged_events is not None:
            self._judged_events.unpersist()


class RangeFolder:
    """Folds ranges for one declaration of a step."""

    def __init__(
        self, catalyst: Catalyst, pipe: str, declaration: StepDeclaration, revision: str, log: str = ""
    ) -> None:
        """Compile the expressions.

        Args:
            catalyst: of the session.
            pipe: of the step.
            declaration: of the step.
            revision: of it, see `Catalyst.bounded`.
            log: see `ResultEvents`.

        Raises:
            SqlProblem: Spark rejects an expression.
        """
        self.pipe: Final = pipe
        self.declaration: Final = declaration
        self._catalyst = catalyst
        self._judged = JudgedEvents(catalyst, pipe, declaration, revision)
        argument_types = self._judged.argument_types
        self.results = ResultEvents(pipe, declaration.step, argument_types, log)
        self._groups = EventGroups(declaration.step, argument_types)
        self._prepared_events = PreparedFrame(self._judged.of(catalyst.empty_frame(SOURCE_COLUMNS)))
        self._prepared_groups = PreparedFrame(self._groups.of(self._prepared_events.frame))
        self.keeps_data: Final = bool(declaration.step.first or declaration.step.join)
        """Whether rows have data of events."""
        self._query: RangeQuery | None = None
        self._letters_query: RangeQuery | None = None

    @property
    def parts(self) -> list[FieldPart]:
        """The parts of all fields, in order."""
        return self.results.parts

    def fold(
        self, records: DataFrame, rules: FoldRules, *, keeps_events: bool = False, is_small: bool = True
    ) -> FoldedRange:
        """Judge the events of a range.

        Args:
            records: of `enriched`, with partition, offset, key, value and headers, in any order.
            rules: that decide.
            keeps_events: whether what the range is asked for after its summary and rows has the same verdicts. Else
                they are computed anew, and an event that was within its budget of time may exceed it then.
            is_small: whether `fold_small` can fold the range.
        """
        source = self._judged.source(records, rules)
        events = self._prepared_events.of(source)
        if keeps_events:
            events.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            groups = self._prepared_groups.of(source).collect()
            summary, rows = self._groups.read(groups)
            return FoldedRange(self, rules.partitions, summary, rows, events, is_small=is_small)
        except BaseException:
            events.unpersist()
            raise

    def fold_small(
        self,
        topic: str,
        client: Mapping[str, str],
        start: Mapping[int, int],
        end: Mapping[int, int],
        rules: FoldRules,
    ) -> FoldedRange:
        """Judge the events of a small range of `enriched`, in a third of the time; it keeps no events.

        Args:
            topic: `enriched`.
            client: settings of Kafka's client, with a group.
            start: partition to the offset of its first record.
            end: partition to the offset after its last record.
            rules: that decide; no event was judged before.

        Raises:
            RangeTooLarge: its rows have more than `MOST_BYTES`, and it has more than one record.
        """
        if self._query is None:
            self._query = RangeQuery(self._catalyst.spark, topic, client, SOURCE_COLUMNS, self._grouped)
        numbers = zip(*self._judged.rule_numbers(rules), strict=True)
        ranges = [
            (partition, start[partition], end[partition], *numbers_of)
            for partition, numbers_of in enumerate(numbers)
        ]
        records = sum(end[partition] - offset for partition, offset in start.items())
        rows = self._query.rows(ranges, MOST_BYTES if records > 1 else _ANY_BYTES)
        if rows is None:
            raise RangeTooLarge(
                f"{records:,} records of {topic} make more than {MOST_BYTES >> 20} MiB: they are read in smaller parts"
            )
        groups = self._groups.read(rows)
        judge_again = partial(self._small_letters, topic, client, ranges)
        return FoldedRange(self, rules.partitions, *groups, judge_again=judge_again)

    def _small_letters(
        self,
        topic: str,
        client: Mapping[str, str],
        ranges: Iterable[Sequence[int | None]],
        fetched_us: int,
    ) -> list[LetterRecord] | None:
        if self._letters_query is None:
            columns = f"{SOURCE_COLUMNS}, {_FETCHED} bigint"
            self._letters_query = RangeQuery(self._catalyst.spark, topic, client, columns, self._refused)
        numbers = ((*numbers_of, fetched_us) for numbers_of in ranges)
        rows = self._letters_query.rows(numbers, MOST_LETTER_BYTES)
        return None if rows is None else list(map(LetterRecord.of_row, rows))

    def _grouped(self, source: DataFrame) -> DataFrame:
        return self._groups.of(self._judged.of(source))

    def _refused(self, source: DataFrame) -> DataFrame:
        return dead_letters(self._judged.of(source), self.pipe, self.declaration.step, _FETCHED)
