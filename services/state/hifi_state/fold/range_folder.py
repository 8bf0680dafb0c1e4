"""Folds a range of `enriched` with Spark: which events count, which are late, and the parts of their windows.

Whether an event is late is decided by the record: by the stamp that normalize gave it, and, where it has none, by the
windows that were closed when it was read first (`Judged`). So the same log gives the same windows however it is cut.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from hifi.pipe.sources.step import StepKey, StepWindow
from hifi.pipe.step_inputs import FUTURE_MS
from hifi.record.headers import (
    ACCEPTED,
    CE_PREFIX,
    CONTENT_TYPE,
    DETAIL,
    RAW,
    REASON,
    REPLAY,
    SEQ,
    SERVICE,
    SOURCE,
    STAMP,
    STEP,
    TIME,
)
from hifi.record.hop import STAMP_AT
from hifi.record.identity import FORMAT, KIND_AT
from hifi.record.spark_sql import (
    fingerprint,
    header,
    header_text,
    hop_field,
    hop_header,
    hop_texts,
    identity_field,
    identity_texts,
    literal,
    source_text,
)
from hifi.record.step_account import COPY, FOLDED, LEFT_OUT, NO_EVENTS, Tally
from hifi.spark.catalyst import BOUNDED, Catalyst, JavaObject
from hifi.spark.json_fields import json_fields
from hifi.spark.prepared_frame import PreparedFrame
from hifi.spark.step_sql import FieldPart, parts, step_sql
from hifi_state.fold.declaration import StepDeclaration
from hifi_state.fold.key_limit import KeyLimit, event_of
from hifi_state.fold.progress import Judged, RangeSummary, lane
from hifi_state.fold.results import ResultEvents, key_text
from hifi_state.fold.window_row import FoldedEvent, WindowRow

LATE: Final = "late"
FUTURE: Final = "future"
NO_KEY: Final = "no-key"
REPLAYED: Final = "replayed"
KEY_LIMIT: Final = "key-limit"
_NOT_REFUSED: Final = (FOLDED, COPY, LEFT_OUT)
_HEARTBEAT: Final = "heartbeat"
_DETAILS: Final = {
    LATE: "its time is before the watermark less the lateness of the step {step}, whose windows are closed there",
    FUTURE: f"its time is more than {FUTURE_MS // 1000} s after it was accepted, so {{step}} does not count it",
    NO_KEY: "a field of the key of the step {step} is null",
    REPLAYED: "it was replayed to a service after normalize, so the step {step} cannot tell when it came",
    KEY_LIMIT: "the step {step} counts at most {most:,} events of a key ({key}) in {length_s:,} s, of each pipe and"
    " partition, and had them before this one: raise `limit` in the source of the step",
}
_PARSED: Final = (
    {
        "hifi.head": "split(cast(headers[0].value as string), ';')",
        "identity": identity_texts(),
        "hop": hop_texts(),
        "hifi.time_text": f"upper({header_text(TIME)})",
        "hifi.replay": f"nullif({header_text(REPLAY)}, '0')",
    },
    {
        "hifi.kind": f"coalesce(`hifi.head`[{KIND_AT}], '')",
        "hifi.fingerprint": fingerprint(),
        "hifi.stamp": f"cast(nullif({hop_field(STAMP)}, '') as bigint)",
        "hifi.raw": f"coalesce(cast(nullif({hop_field(RAW)}, '') as bigint), -1)",
        "hifi.accepted": f"cast({identity_field(ACCEPTED)} as bigint) div 1000",
    },
    {
        # A replay that re-entered after normalize has its old offset in `raw`.
        "hifi.ranked": "`hifi.raw` >= 0 and (`hifi.replay` is null or "
        f"coalesce({header_text(SERVICE)}, '') = 'normalize')",
    },
)
"""SQL of columns; those of a step read those of the steps before."""
_SOURCE: Final = (
    "partition int, offset bigint, key binary, value binary, headers array<struct<key: string, value: binary>>"
    ", `hifi.highest` bigint, `hifi.horizon` bigint, `hifi.emitted` bigint, `hifi.needed` bigint"
)
"""Columns of the source of a range: of its records, and of what decides on them.

    hifi.highest: the highest offset in `raw` of the partition before the range
    hifi.horizon: see `FoldRules.horizon_ms`
    hifi.emitted: windows up to here have their results; null: none has
    hifi.needed: events before have no effect on later results; null: not known
"""
_HAS_NO_RESULT: Final = "(`hifi.emitted` is null or `hifi.end` > `hifi.emitted`)"
_UNSTAMPED: Final = f"`hifi.stamp` is null and (`hifi.kind` = '{_HEARTBEAT}' or `hifi.ranked`)"
"""SQL of whether a record says that its partition has no watermark; a replay says nothing."""
_DIGITS: Final = "[0-9]{2}"
_RFC3339: Final = (
    f"\\\\A[0-9]{{4}}-{_DIGITS}-{_DIGITS}[T ]{_DIGITS}:{_DIGITS}:{_DIGITS}([.][0-9]{{1,30}})?"
    f"(Z|[+-]{_DIGITS}:{_DIGITS})\\\\z"
)
_TIME: Final = (
    f"coalesce(if(`hifi.time_text` rlike '{_RFC3339}', unix_millis(cast(`hifi.time_text` as timestamp)), null),"
    " `hifi.accepted`)"
)


@dataclass(frozen=True, slots=True)
class FoldRules:
    """What decides on the events of a range.

    Attributes:
        partitions: number of partitions of `enriched`.
        raws: partition to the highest offset in `raw` before the range.
        horizon_ms: no earlier event of the range counts, see `Progress.closed_ms`; None: any may.
        emitted_ms: windows up to here have their results; None: none has.
        judged: how the events of a range that was folded before were judged by the horizon; None: it was not.
    """

    partitions: int
    raws: Mapping[int, int]
    horizon_ms: int | None
    emitted_ms: int | None = None
    judged: Sequence[Judged] | None = None


class FoldedRange:
    """A range with its summary. Its records stay cached until it is released."""

    def __init__(self, source: DataFrame, events: DataFrame, folder: "RangeFolder", partitions: int) -> None:
        self._source = source
        self._partitions = partitions
        self._events = events
        self._folder = folder
        self._beyond: list[tuple[int, int]] = []
        """Partition and offset in `raw` of the events beyond the limit."""
        self.summary = folder.summary(source)

    def rows(self, limit: KeyLimit | None) -> list[WindowRow]:
        """The parts of each window and key, or of each event, which later results need; of sessions all.

        Args:
            limit: refuses events, in the summary and in `dead_letters`, too; None: nothing is refused.
        """
        if not self.summary.counts.get(FOLDED):
            return []
        rows = list(self._folder.window_rows(self._source))
        if limit is None:
            return rows
        rows, beyond_rows = limit.split(rows)
        for row in beyond_rows:
            event = event_of(row)
            self._beyond.append((event.partition, event.raw))
            self.summary.refuse(KEY_LIMIT, event.partition, row.ending)
        return rows

    def dead_letters(self, fetched_us: int) -> DataFrame | None:
        """The records for the topic `dead-letter`; None: every event counts.

        Args:
            fetched_us: when the range was read, microseconds since 1970 UTC.
        """
        refused_count = sum(
            count for verdict, count in self.summary.counts.items() if verdict not in _NOT_REFUSED
        )
        if not refused_count:
            return None
        fetched = _by_partition(fetched_us for _ in range(self._partitions))
        return self._folder.dead_letters(self._decided, fetched)

    def verdicts(self) -> Iterator[tuple[int, int, str, int, str]]:
        """Partition, offset, identity, time (milliseconds since 1970 UTC) and verdict of each event."""
        rows = (
            self._decided.filter(f"`hifi.verdict` <> '{_HEARTBEAT}'")
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
        """Forget the records."""
        self._events.unpersist()


class _RowEvaluation(NamedTuple):
    """What is evaluated for each event of a pipe.

    Attributes:
        names: of the fields that it reads.
        returns: type of its result, see `StepSql.row`.
        bounded: the compiled expression.
    """

    names: tuple[str, ...]
    returns: StructType
    bounded: JavaObject

    def column(self, catalyst: Catalyst) -> Column:
        """Its result for the events of a frame."""
        fields = json_fields("`hifi.text`", self.names)
        inputs = sql.expr(
            f"named_struct('text', `hifi.text`, 'fields', {fields},"
            " 'rows', cast(null as array<array<array<string>>>), 'returned', cast(null as string))"
        )
        arguments = [catalyst.expression(column) for column in (inputs, sql.col("headers"))]
        bounded = catalyst.constant(self.bounded, BOUNDED)
        return catalyst.column(catalyst.call(bounded, "eval", self.returns, *arguments))


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
        self._catalyst = catalyst
        self._pipe = pipe
        self.declaration: Final = declaration
        self._step = step = declaration.step
        self._pipes = step.read_pipes
        self._evaluations = [self._evaluation(number, revision) for number in range(len(self._pipes))]
        patch = self._evaluations[0].returns["patch"].dataType
        assert isinstance(patch, StructType)
        patch_types = {field.name: field.dataType.simpleString() for field in patch.fields}
        self._kinds = [patch_types.get(f"argument{index}", "bigint") for index in range(len(step.aggregates))]
        self.results = ResultEvents(pipe, step, self._kinds, log)
        self._events = PreparedFrame(self._judged(self._parsed(catalyst.empty_frame(_SOURCE))))
        self._summaries = PreparedFrame(_verdict_groups(self._events.frame))
        self._window_rows = PreparedFrame(self.grouped(self._events.frame))

    def _evaluation(self, number: int, revision: str) -> _RowEvaluation:
        """Compile what is evaluated for the events of one of `StepSource.inputs`."""
        catalyst = self._catalyst
        row_sql = step_sql(self._step, self.declaration.types[number], number)
        expression = catalyst.compile(row_sql.row)
        bounded = catalyst.bounded(expression, f"step/{self._pipe}/{number}@{revision}", result=True)
        return _RowEvaluation(row_sql.names, catalyst.struct_type(expression), bounded)

    @property
    def parts(self) -> list[FieldPart]:
        """The parts of all fields, in order."""
        return self.results.parts

    def fold(self, records: DataFrame, rules: FoldRules) -> FoldedRange:
        """Judge the events of a range.

        Args:
            records: of `enriched`, with partition, offset, key, value and headers, in any order.
            rules: that decide.
        """
        source = records.selectExpr("partition", "offset", "key", "value", "headers", *self._rules_sql(rules))
        events = self._events.of(source).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return FoldedRange(source, events, self, rules.partitions)
        except BaseException:
            events.unpersist()
            raise

    def _rules_sql(self, rules: FoldRules) -> list[str]:
        """The columns of `_SOURCE` that are the same for all records of a partition.

        They are elements of arrays, since Spark would write other constants into its generated code, and compile it
        anew for each range.
        """
        emitted_ms, partitions = rules.emitted_ms, range(rules.partitions)
        needed_ms = None if emitted_ms is None else self._step.needed_from_ms(emitted_ms)
        return [
            f"{_by_partition(rules.raws.get(partition, -1) for partition in partitions)} as `hifi.highest`",
            f"{_horizon_sql(rules)} as `hifi.horizon`",
            f"{_by_partition(emitted_ms for _ in partitions)} as `hifi.emitted`",
            f"{_by_partition(needed_ms for _ in partitions)} as `hifi.needed`",
        ]

    def _parsed(self, records: DataFrame) -> DataFrame:
        first_header = "cast(headers[0].value as string)"
        is_of_pipe = [f"startswith({first_header}, {literal(f'{FORMAT};{pipe};')})" for pipe in self._pipes]
        frame = records.filter(f"headers[0].key = 'hifi' and ({' or '.join(is_of_pipe)})")
        frame = frame.withColumn("hifi.of_with", sql.expr(is_of_pipe[1] if is_of_pipe[1:] else "false"))
        for columns in _PARSED:
            frame = frame.withColumns({name: sql.expr(text) for name, text in columns.items()})
        # A heartbeat has a kind, which `identity_texts` refuses, and only its stamp counts.
        frame = frame.filter(f"`hifi.kind` = '{_HEARTBEAT}' or (identity is not null and hop is not null)")
        heartbeat_stamp = f"split(cast(headers[1].value as string), ';')[{STAMP_AT}]"
        return frame.withColumn(
            "hifi.stamp",
            sql.expr(
                f"if(`hifi.kind` = '{_HEARTBEAT}', cast(nullif({heartbeat_stamp}, '') as bigint), `hifi.stamp`)"
            ),
        ).withColumn("hifi.time", sql.expr(_TIME))

    def _judged(self, frame: DataFrame) -> DataFrame:
        frame = frame.withColumn("hifi.text", sql.expr("cast(value as string)"))
        evaluated, *of_with = [evaluation.column(self._catalyst) for evaluation in self._evaluations]
        if of_with:
            evaluated = sql.when(sql.col("`hifi.of_with`"), of_with[0]).otherwise(evaluated)
        frame = frame.withColumn("hifi.row", sql.when(sql.col("`hifi.kind`") == "", evaluated))
        # The first copy counts, by its offset: the others may have been read later.
        copies = "if(`hifi.kind` = '' and `hifi.ranked`, `hifi.raw`, -1 - offset)"
        frame = frame.withColumn(
            "hifi.number", sql.expr(f"row_number() over (partition by partition, {copies} order by offset)")
        )
        missing_key = " or ".join(f"{key} is null" for key in self._key_columns)
        by_stamp = f"`hifi.stamp` - {self._step.lateness_ms}L"
        verdicts = [
            (f"`hifi.kind` = '{_HEARTBEAT}'", _HEARTBEAT),
            ("`hifi.ranked` and (`hifi.number` > 1 or `hifi.raw` <= `hifi.highest`)", COPY),
        ]
        later_verdicts = [
            ("not `hifi.row`.patch.kept", LEFT_OUT),
            ("not `hifi.ranked`", REPLAYED),
            (missing_key, NO_KEY),
            (f"`hifi.time` > `hifi.accepted` + {FUTURE_MS}", FUTURE),
            (f"`hifi.time` < greatest(0L, {by_stamp}, `hifi.horizon`)", LATE),
        ]
        cases = [
            *(f"when {condition} then '{verdict}'" for condition, verdict in verdicts),
            "when `hifi.row`.failure is not null then split(`hifi.row`.failure, ':')[0]",
            *(f"when {condition} then '{verdict}'" for condition, verdict in later_verdicts),
        ]
        frame = frame.withColumn("hifi.verdict", sql.expr(f"case {' '.join(cases)} else '{FOLDED}' end"))
        is_judged = (
            f"`hifi.verdict` = '{FOLDED}' and `hifi.stamp` is null or `hifi.verdict` = '{LATE}' and"
            f" `hifi.time` >= greatest(0L, {by_stamp})"
        )
        return frame.withColumn("hifi.judged", sql.expr(is_judged))

    def summary(self, source: DataFrame) -> RangeSummary:
        """The summary of a range, see `FoldedRange`."""
        summary = RangeSummary()
        last_unstamped: dict[int, tuple[int, bool]] = {}
        """`lane` to the offset of the last record without a stamp, and whether it is a heartbeat."""
        rows = self._summaries.of(source).collect()
        for (
            partition,
            of_with,
            verdict,
            count,
            stamp,
            raw,
            earliest,
            latest,
            unstamped,
            first,
            last,
            xor,
        ) in map(tuple, rows):
            number = lane(partition, of_with=of_with)
            if stamp is not None:
                summary.marks[number] = max(stamp, summary.marks.get(number, stamp))
            if unstamped is not None:
                newest = unstamped, verdict == _HEARTBEAT
                last_unstamped[number] = max(newest, last_unstamped.get(number, newest))
            if verdict == _HEARTBEAT:
                continue
            if raw is not None:
                summary.raws[partition] = max(raw, summary.raws.get(partition, raw))
            if first is not None:
                offsets = (*summary.judged.get(partition, ()), first, last)
                summary.judged[partition] = min(offsets), max(offsets)
            if verdict == FOLDED:
                earlier_ms, later_ms = summary.earliest_ms, summary.latest_ms
                summary.earliest_ms = earliest if earlier_ms is None else min(earliest, earlier_ms)
                summary.latest_ms = latest if later_ms is None else max(latest, later_ms)
            summary.counts[verdict] = summary.counts.get(verdict, 0) + count
            verdicts = summary.read.setdefault(partition, {})
            verdicts[verdict] = verdicts.get(verdict, NO_EVENTS).plus(Tally(count, xor))
        for number, (_, is_heartbeat) in last_unstamped.items():
            (summary.empty if is_heartbeat else summary.events).add(number)
        return summary

    def grouped(self, events: DataFrame) -> DataFrame:
        """What `window_rows` reads, of judged events."""
        frame = events.filter(f"`hifi.verdict` = '{FOLDED}'")
        gap_ms, window = self._step.gap_ms, self._step.window
        if gap_ms is not None:
            frame = self._in_sessions(frame, gap_ms)
        elif window is not None:
            frame = self._in_windows(frame, window)
        else:
            frame = self._as_events(frame)
        keys = [sql.expr(f"{key} as key{index}") for index, key in enumerate(self._key_columns)]
        columns = [
            sql.expr("min(`hifi.start`) as start_ms"),
            sql.expr("max(`hifi.end`) as end_ms"),
            sql.expr("count(1) as inputs"),
            sql.expr("count_if(`hifi.is_last`) as ending"),
            sql.expr("coalesce(bit_xor(if(`hifi.is_last`, `hifi.fingerprint`, null)), 0L) as ending_xor"),
        ]
        for index, aggregate in enumerate(self._step.aggregates.values()):
            column = f"`hifi.row`.patch.argument{index}"
            columns += [
                sql.expr(part.sql.replace("{}", column)).alias(f"part{index}_{number}")
                for number, part in enumerate(parts(aggregate, self._kinds[index]))
            ]
        return frame.groupBy("`hifi.window`", *keys).agg(*columns)

    def window_rows(self, source: DataFrame) -> Iterator[WindowRow]:
        """The parts of each window and key of the folded events of a range, see `FoldedRange.rows`."""
        kinds: list[StepKey] = list(self._step.key.values())
        for row in self._window_rows.of(source).collect():
            window_values, *values = tuple(row)
            key_values, (start_ms, end_ms, inputs, count, xor, *part_values) = (
                values[: len(kinds)],
                values[len(kinds) :],
            )
            yield WindowRow(
                start_ms,
                end_ms,
                key_text(kinds, key_values),
                inputs,
                [_plain(value) for value in part_values],
                Tally(count, xor),
                None if self._step.window is not None else _folded_event(*window_values),
            )

    def _in_windows(self, frame: DataFrame, window: StepWindow) -> DataFrame:
        """The events with `hifi.window`, `hifi.start` and `hifi.end`, once for each window without results."""
        last_start = f"(`hifi.time` - pmod(`hifi.time`, {window.every_ms}L))"
        first_start = f"{last_start} - {window.size_ms - window.every_ms}L"
        starts = f"sequence({first_start}, {last_start}, {window.every_ms}L)"
        frame = frame.withColumn("hifi.start", sql.expr(f"explode({starts})"))
        frame = frame.withColumn("hifi.end", sql.expr(f"`hifi.start` + {window.size_ms}L"))
        frame = frame.filter(_HAS_NO_RESULT)
        # No event that counts is before the horizon, so its last window is among these.
        frame = frame.withColumn("hifi.is_last", sql.expr(f"`hifi.start` = {last_start}"))
        return frame.withColumn("hifi.window", sql.col("`hifi.end`"))

    def _in_sessions(self, frame: DataFrame, gap_ms: int) -> DataFrame:
        """The same for the sessions of these events alone; one that has results may be a part of an open one here."""
        events_of_key = (
            f"(partition by {', '.join(self._key_columns)} order by `hifi.time`, `partition`, `offset`"
        )
        is_first = f"coalesce(`hifi.time` - lag(`hifi.time`) over {events_of_key}) > {gap_ms}L, true)"
        frame = frame.withColumn("hifi.first", sql.expr(f"cast({is_first} as int)"))
        number = f"sum(`hifi.first`) over {events_of_key} rows between unbounded preceding and current row)"
        frame = frame.withColumn("hifi.window", sql.expr(number))
        frame = frame.withColumn("hifi.start", sql.col("`hifi.time`"))
        frame = frame.withColumn("hifi.is_last", sql.lit(True))
        return frame.withColumn("hifi.end", sql.expr(f"`hifi.time` + {gap_ms + 1}L"))

    def _as_events(self, frame: DataFrame) -> DataFrame:
        """The same with each event for itself; `hifi.window` has the values of its `FoldedEvent`."""
        frame = frame.withColumn("hifi.start", sql.col("`hifi.time`"))
        step = self._step
        beyond_ms = 1 if step.join is None else step.length_ms + 1
        frame = frame.withColumn("hifi.end", sql.expr(f"`hifi.time` + {beyond_ms}L"))
        frame = frame.withColumn("hifi.is_last", sql.lit(True))
        frame = frame.filter("`hifi.needed` is null or `hifi.start` >= `hifi.needed`")
        members = ["partition", "`hifi.raw`", f"coalesce({header_text('ce_id')}, {identity_field(SEQ)})"]
        if step.join is not None:
            values = f"if({_HAS_NO_RESULT}, cast(`hifi.row`.patch.values as binary), null)"
            members += ["cast(null as string)", values, "`hifi.of_with`"]
        if step.first is not None:
            is_attribute = f"startswith(h.key, {literal(CE_PREFIX)}) or h.key = {literal(CONTENT_TYPE)}"
            attributes = f"filter(headers, h -> {is_attribute})"
            texts = f"to_json(transform({attributes}, h -> array(h.key, cast(h.value as string))))"
            members += [f"if({_HAS_NO_RESULT}, {member}, null)" for member in (texts, "value")]
        return frame.withColumn("hifi.window", sql.expr(f"struct({', '.join(members)})"))

    @property
    def _key_columns(self) -> list[str]:
        """SQL of the fields of the key."""
        return [f"`hifi.row`.patch.key{index}" for index in range(len(self._step.key))]

    def dead_letters(self, events: DataFrame, fetched: str) -> DataFrame:
        """The records of the events that do not count, see `FoldedRange.dead_letters`; `fetched`: SQL of it."""
        step = self._step
        values = {
            "most": step.most_events or 0,
            "key": ", ".join(step.key),
            "length_s": step.length_ms // 1000,
        }
        details = " ".join(
            f"when '{verdict}' then {literal(detail.format(step=self._pipe, **values))}"
            for verdict, detail in _DETAILS.items()
        )
        failure_detail = "ltrim(substring(`hifi.row`.failure, length(`hifi.verdict`) + 2))"
        failure_headers = [
            header(SOURCE, source_text("enriched", "offset")),
            header(REASON, "`hifi.verdict`"),
            header(DETAIL, f"case `hifi.verdict` {details} else {failure_detail} end"),
            header(SERVICE, "'state'"),
            header(STEP, literal(self._pipe)),
        ]
        names = ", ".join(literal(name) for name in (SOURCE, REASON, DETAIL, SERVICE, STEP))
        kept = f"filter(slice(headers, 3, size(headers)), h -> h.key not in ({names}))"
        leading = ["headers[0]", hop_header(fetched, "if(`hifi.raw` >= 0, `hifi.raw`, null)")]
        not_refused = ", ".join(f"'{verdict}'" for verdict in (*_NOT_REFUSED, _HEARTBEAT))
        return events.filter(f"`hifi.verdict` not in ({not_refused})").select(
            "key",
            "value",
            sql.expr(
                f"concat(array({', '.join(leading)}), {kept}, array({', '.join(failure_headers)}))"
            ).alias("headers"),
            "partition",
        )


def _verdict_groups(events: DataFrame) -> DataFrame:
    """What the summary of a range is made of."""
    return events.groupBy("partition", "`hifi.of_with`", "`hifi.verdict`").agg(
        sql.expr("count(1) as count"),
        sql.expr("max(`hifi.stamp`) as stamp"),
        sql.expr("max(if(`hifi.ranked`, `hifi.raw`, null)) as raw"),
        sql.expr("min(`hifi.time`) as earliest"),
        sql.expr("max(`hifi.time`) as latest"),
        sql.expr(f"max(if({_UNSTAMPED}, offset, null)) as unstamped"),
        sql.expr("min(if(`hifi.judged`, offset, null)) as first"),
        sql.expr("max(if(`hifi.judged`, offset, null)) as last"),
        sql.expr("bit_xor(`hifi.fingerprint`) as xor"),
    )


def _horizon_sql(rules: FoldRules) -> str:
    """SQL of the horizon that counts for a record (bigint); null: none does."""
    if rules.judged is None:
        return _by_partition(rules.horizon_ms for _ in range(rules.partitions))
    cases = [
        f"when partition = {entry.partition} and offset between {entry.first}L and {entry.last}L"
        f" then {entry.horizon_ms}L"
        for entry in rules.judged
        if entry.horizon_ms is not None
    ]
    return f"case {' '.join(cases)} end" if cases else _bigint(None)


def _folded_event(
    partition: int,
    raw: int,
    event_id: str,
    headers: str | None = None,
    data: bytes | None = None,
    of_with: bool = False,
) -> FoldedEvent:
    data = None if data is None else bytes(data)
    return FoldedEvent(partition, raw, event_id, headers, data, of_with=of_with)


def _bigint(number: int | None) -> str:
    return "cast(null as bigint)" if number is None else f"{number}L"


def _by_partition(numbers: Iterable[int | None]) -> str:
    return f"array({', '.join(map(_bigint, numbers))})[partition]"


def _plain(value: Any) -> Any:
    """A value of a part as `WindowFile` keeps it: Spark sums whole numbers as decimals."""
    return value if value is None or isinstance(value, int | float | str) else int(value)
