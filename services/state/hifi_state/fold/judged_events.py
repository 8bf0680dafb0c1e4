"""Judges the events of a range of `enriched` with Spark: which count for a step, and why the others do not.

Whether an event is late is decided by the record: by the stamp that normalize gave it, and, where it has none, by the
windows that were closed when it was read first (`Judged`). So the same log gives the same windows however it is cut.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from hifi.pipe.sources.step import StepSource
from hifi.pipe.step_inputs import FUTURE_MS
from hifi.record.headers import ACCEPTED, RAW, REPLAY, SERVICE, STAMP, TIME
from hifi.record.hop import STAMP_AT
from hifi.record.identity import FORMAT, KIND_AT
from hifi.record.spark_sql import (
    fingerprint,
    header_text,
    hop_field,
    hop_texts,
    identity_field,
    identity_texts,
    literal,
)
from hifi.record.step_account import COPY, FOLDED, LEFT_OUT
from hifi.spark.catalyst import BOUNDED, Catalyst, JavaObject
from hifi.spark.json_fields import json_fields
from hifi.spark.range_query import RECORD_COLUMNS
from hifi.spark.step_sql import step_sql
from hifi_state.fold.dead_letters import FUTURE, HEARTBEAT, LAST_YEAR, LATE, NO_KEY, REPLAYED
from hifi_state.fold.declaration import StepDeclaration
from hifi_state.fold.progress import Judged

_END_MS: Final = round(datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC).timestamp() * 1000)


def _stamp(text: str) -> str:
    """SQL of a stamp (bigint) from its text; null: there is none, or it is after `LAST_YEAR`."""
    stamp = f"cast(nullif({text}, '') as bigint)"
    return f"if({stamp} < {_END_MS}L, {stamp}, null)"


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
        "hifi.stamp": _stamp(hop_field(STAMP)),
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
_RULES: Final = ("hifi.highest", "hifi.newest", "hifi.horizon", "hifi.emitted", "hifi.needed")
SOURCE_COLUMNS: Final = ", ".join((RECORD_COLUMNS, *(f"`{name}` bigint" for name in _RULES)))
"""Columns of the source of a range: of its records, and of what decides on them.

    hifi.highest: the highest offset in `raw` of the partition before the range
    hifi.newest: see `FoldRules.newest_ms`; null: not known
    hifi.horizon: see `FoldRules.horizon_ms`
    hifi.emitted: windows up to here have their results; null: none has
    hifi.needed: events before have no effect on later results; null: not known
"""
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
    """The state by which the events of a range are judged.

    Attributes:
        partitions: number of partitions of `enriched`.
        raws: partition to the highest offset in `raw` before the range.
        horizon_ms: no earlier event of the range counts, see `Progress.closed_ms`; None: any may.
        emitted_ms: windows up to here have their results; None: none has.
        judged: how the events of a range that was folded before were judged by the horizon; None: it was not.
        newest_ms: see `Progress.newest_ms`, before the range; absent: no restart of `raw` is looked for.
    """

    partitions: int
    raws: Mapping[int, int]
    horizon_ms: int | None
    emitted_ms: int | None = None
    judged: Sequence[Judged] | None = None
    newest_ms: Mapping[int, int] = field(default_factory=dict)


class _RowEvaluation(NamedTuple):
    """The expressions that are evaluated for each event of a pipe.

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


class JudgedEvents:
    """The events of a step with what it reads of them and their verdicts, in columns whose names begin with `hifi.`."""

    def __init__(self, catalyst: Catalyst, pipe: str, declaration: StepDeclaration, revision: str) -> None:
        """Compile the expressions.

        Args:
            catalyst: of the session.
            pipe: of the step.
            declaration: of the step.
            revision: of it, see `Catalyst.bounded`.

        Raises:
            SqlProblem: Spark rejects an expression.
        """
        self._catalyst = catalyst
        self._pipe = pipe
        self._declaration = declaration
        self._step = declaration.step
        self._pipes = declaration.step.read_pipes
        self._evaluations = [self._evaluation(number, revision) for number in range(len(self._pipes))]

    def _evaluation(self, number: int, revision: str) -> _RowEvaluation:
        """Compile what is evaluated for the events of one of `StepSource.inputs`."""
        catalyst = self._catalyst
        row_sql = step_sql(self._step, self._declaration.types[number], number)
        expression = catalyst.compile(row_sql.row)
        returns = catalyst.struct_type(expression)
        returns["patch"].nullable = True  # that of an event on which the expression fails
        bounded = catalyst.bounded(expression, f"step/{self._pipe}/{number}@{revision}", result=True)
        return _RowEvaluation(row_sql.names, returns, bounded)

    @property
    def argument_types(self) -> list[str]:
        """SQL type of the argument of each field of the step; bigint where it has none."""
        patch = self._evaluations[0].returns["patch"].dataType
        assert isinstance(patch, StructType)
        types = {field.name: field.dataType.simpleString() for field in patch.fields}
        return [types.get(f"argument{index}", "bigint") for index in range(len(self._step.aggregates))]

    def source(self, records: DataFrame, rules: FoldRules) -> DataFrame:
        """Records with the columns of `SOURCE_COLUMNS`, see `RangeFolder.fold`."""
        return records.selectExpr("partition", "offset", "key", "value", "headers", *self._rules_sql(rules))

    def of(self, source: DataFrame) -> DataFrame:
        """The events among records with the columns of `SOURCE_COLUMNS`, and heartbeats."""
        return self._judged(self._parsed(source))

    def rule_numbers(self, rules: FoldRules) -> list[list[int | None]]:
        """The columns of `SOURCE_COLUMNS` that all records of a partition share: a list for each, indexed by partition.

        Without the horizon by which events were judged before, which does not depend on the partition alone.
        """
        emitted_ms, partitions = rules.emitted_ms, range(rules.partitions)
        horizon_ms = rules.horizon_ms if rules.judged is None else None
        needed_ms = None if emitted_ms is None else self._step.needed_from_ms(emitted_ms)
        highest: list[int | None] = [rules.raws.get(partition, -1) for partition in partitions]
        return [
            highest,
            [rules.newest_ms.get(partition) for partition in partitions],
            *([number] * rules.partitions for number in (horizon_ms, emitted_ms, needed_ms)),
        ]

    def _rules_sql(self, rules: FoldRules) -> list[str]:
        """The same as SQL.

        They are elements of arrays, since Spark would write other constants into its generated code, and compile it
        anew for each range.
        """
        columns = dict(zip(_RULES, map(by_partition, self.rule_numbers(rules)), strict=True))
        if rules.judged:
            columns["hifi.horizon"] = _horizon_sql(rules.judged)
        return [f"{column} as `{name}`" for name, column in columns.items()]

    def _parsed(self, records: DataFrame) -> DataFrame:
        first_header = "cast(headers[0].value as string)"
        is_of_pipe = [f"startswith({first_header}, {literal(f'{FORMAT};{pipe};')})" for pipe in self._pipes]
        frame = records.filter(f"headers[0].key = 'hifi' and ({' or '.join(is_of_pipe)})")
        frame = frame.withColumn("hifi.of_with", sql.expr(is_of_pipe[1] if is_of_pipe[1:] else "false"))
        for columns in _PARSED:
            frame = frame.withColumns({name: sql.expr(text) for name, text in columns.items()})
        # A heartbeat has a kind, which `identity_texts` refuses, and only its stamp counts.
        frame = frame.filter(f"`hifi.kind` = '{HEARTBEAT}' or (identity is not null and hop is not null)")
        heartbeat_stamp = _stamp(f"split(cast(headers[1].value as string), ';')[{STAMP_AT}]")
        return frame.withColumn(
            "hifi.stamp",
            sql.expr(f"if(`hifi.kind` = '{HEARTBEAT}', {heartbeat_stamp}, `hifi.stamp`)"),
        ).withColumn("hifi.time", sql.expr(_TIME))

    def _judged(self, frame: DataFrame) -> DataFrame:
        frame = frame.withColumn("hifi.text", sql.expr("cast(value as string)"))
        evaluated, *of_with = [evaluation.column(self._catalyst) for evaluation in self._evaluations]
        if of_with:
            evaluated = sql.when(sql.col("`hifi.of_with`"), of_with[0]).otherwise(evaluated)
        frame = frame.withColumn("hifi.row", sql.when(sql.col("`hifi.kind`") == "", evaluated))
        # The first copy counts, by its offset: the others may have been read later. All were accepted at the same time.
        copies = "if(`hifi.kind` = '' and `hifi.ranked`, `hifi.raw`, -1 - offset), `hifi.accepted`"
        frame = frame.withColumn(
            "hifi.number", sql.expr(f"row_number() over (partition by partition, {copies} order by offset)")
        )
        missing_key = " or ".join(f"{key} is null" for key in key_columns(self._step))
        by_stamp = f"`hifi.stamp` - {self._step.lateness_ms}L"
        verdicts = [
            (f"`hifi.kind` = '{HEARTBEAT}'", HEARTBEAT),
            ("`hifi.ranked` and (`hifi.number` > 1 or `hifi.raw` <= `hifi.highest`)", COPY),
        ]
        later_verdicts = [
            ("not `hifi.row`.patch.kept", LEFT_OUT),
            ("not `hifi.ranked`", REPLAYED),
            (missing_key, NO_KEY),
            (f"`hifi.time` > least(`hifi.accepted`, {_END_MS - 1}L) + {FUTURE_MS}", FUTURE),
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


def key_columns(step: StepSource) -> list[str]:
    """SQL of the fields of the key of a judged event."""
    return [f"`hifi.row`.patch.key{index}" for index in range(len(step.key))]


def _bigint(number: int | None) -> str:
    return "cast(null as bigint)" if number is None else f"{number}L"


def by_partition(numbers: Iterable[int | None]) -> str:
    """SQL of a number for each partition (bigint), as an element of an array, see `JudgedEvents.source`."""
    return f"array({', '.join(map(_bigint, numbers))})[partition]"


def _horizon_sql(judged: Sequence[Judged]) -> str:
    """SQL of the horizon by which a record was judged (bigint); null: none counted."""
    cases = [
        f"when partition = {entry.partition} and offset between {entry.first}L and {entry.last}L"
        f" then {entry.horizon_ms}L"
        for entry in judged
        if entry.horizon_ms is not None
    ]
    return f"case {' '.join(cases)} end" if cases else _bigint(None)
