"""Groups the judged events of a range: by verdict for its summary, and by window and key."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from hifi.pipe.sources.step import StepKey, StepSource, StepWindow
from hifi.record.headers import CE_PREFIX, CONTENT_TYPE, SEQ
from hifi.record.spark_sql import header_text, identity_field, literal
from hifi.record.step_account import COPY, FOLDED, NO_EVENTS, Tally
from hifi.spark.step_sql import parts
from hifi_state.fold.dead_letters import HEARTBEAT
from hifi_state.fold.judged_events import key_columns
from hifi_state.fold.progress import RangeSummary, lane, raised
from hifi_state.fold.window_row import FoldedEvent, WindowRow

_IS_FOLDED: Final = f"`hifi.verdict` = '{FOLDED}'"
_IS_OF_VERDICT: Final = "`hifi.start` is null"
"""SQL of whether a row stands for an event and its verdict; else it stands for an event in a window."""
_HAS_NO_RESULT: Final = "(`hifi.emitted` is null or `hifi.end` > `hifi.emitted`)"
_UNSTAMPED: Final = f"`hifi.stamp` is null and (`hifi.kind` = '{HEARTBEAT}' or `hifi.ranked`)"
"""SQL of whether a record says that its partition has no watermark; a replay says nothing."""
_NEWEST: Final = f"if(`hifi.ranked` and `hifi.verdict` <> '{COPY}', `hifi.accepted`, null)"
_IS_RESTART: Final = f"`hifi.verdict` = '{COPY}' and `hifi.number` = 1 and `hifi.accepted` > `hifi.newest`"
"""A copy was accepted with its original, which is before the range, or in it and has another number.

A range that holds the last events of one topic `raw` and the first of the next folds both, but a recovery that cuts it
between them takes those of the next for copies.
"""
_SUMMARY: Final = {
    "count": "count(1)",
    "xor": f"bit_xor(if({_IS_OF_VERDICT} or `hifi.is_last`, `hifi.fingerprint`, null))",
    **{
        name: f"{aggregate}(if({_IS_OF_VERDICT}, {value}, null))"
        for name, aggregate, value in (
            ("stamp", "max", "`hifi.stamp`"),
            ("raw", "max", "if(`hifi.ranked`, `hifi.raw`, null)"),
            ("earliest", "min", "`hifi.time`"),
            ("latest", "max", "`hifi.time`"),
            ("unstamped", "max", f"if({_UNSTAMPED}, offset, null)"),
            ("first", "min", "if(`hifi.judged`, offset, null)"),
            ("last", "max", "if(`hifi.judged`, offset, null)"),
            ("accepted", "max", _NEWEST),
            ("restart", "min", f"if({_IS_RESTART}, offset, null)"),
        )
    },
}
"""Columns of both kinds of rows, `count` and `xor`, and those that only a row of a verdict has."""


class EventGroups:
    """The groups of the events of one declaration."""

    def __init__(self, step: StepSource, argument_types: Sequence[str]) -> None:
        """Nothing is read.

        Args:
            step: the declaration.
            argument_types: see `JudgedEvents`.
        """
        self._step = step
        self._argument_types = argument_types

    def of(self, events: DataFrame) -> DataFrame:
        """The groups of judged events: rows of verdicts in partitions, and rows of keys in windows.

        Each event is in one of the first kind, and in those of its windows. One query gives both, since most of what a
        small range costs is its plan.
        """
        gap_ms, window = self._step.gap_ms, self._step.window
        if gap_ms is not None:
            frame = self._in_sessions(events, gap_ms)
        elif window is not None:
            frame = self._in_windows(events, window)
        else:
            frame = self._as_events(events)
        of_verdict = {"verdict": "`hifi.verdict`", "partition": "partition", "of_with": "`hifi.of_with`"}
        of_window = {
            # A date as a text: both ways of reading rows have other values for it.
            f"key{index}": f"cast({column} as string)" if kind is StepKey.DATE else column
            for index, (column, kind) in enumerate(
                zip(key_columns(self._step), self._step.key.values(), strict=True)
            )
        }
        groups = [
            *(
                sql.expr(f"if({_IS_OF_VERDICT}, {column}, null) as {name}")
                for name, column in of_verdict.items()
            ),
            sql.expr("`hifi.window` as window"),
            *(sql.expr(f"if({_IS_OF_VERDICT}, null, {key}) as {name}") for name, key in of_window.items()),
        ]
        columns = [sql.expr(f"{text} as {name}") for name, text in _SUMMARY.items()]
        columns += [
            sql.expr("min(`hifi.start`) as start_ms"),
            sql.expr("max(`hifi.end`) as end_ms"),
            sql.expr("count_if(`hifi.is_last`) as ending"),
        ]
        for index, aggregate in enumerate(self._step.aggregates.values()):
            column = f"`hifi.row`.patch.argument{index}"
            columns += [
                sql.expr(part.sql.replace("{}", column)).alias(f"part{index}_{number}")
                for number, part in enumerate(parts(aggregate, self._argument_types[index]))
            ]
        return frame.groupBy(*groups).agg(*columns)

    def read(self, groups: Iterable[Sequence[Any]]) -> tuple[RangeSummary, list[WindowRow]]:
        """The summary of a range, and for each window and key the parts of its events that count.

        Args:
            groups: rows of the query that `of` makes.
        """
        verdict_groups: list[Sequence[Any]] = []
        rows: list[WindowRow] = []
        summary_at = 1 + len(self._step.key)
        for verdict, partition, of_with, *columns in groups:
            if verdict is None:
                rows.append(self._window_row(columns))
            else:
                figures = columns[summary_at : summary_at + len(_SUMMARY)]
                verdict_groups.append((verdict, partition, of_with, *figures))
        return _summary(verdict_groups), rows

    def _window_row(self, columns: Sequence[Any]) -> WindowRow:
        window, *values = columns
        key_count = len(self._step.key)
        key_values, values = values[:key_count], values[key_count:]
        count, xor = values[:2]
        start_ms, end_ms, ending, *part_values = values[len(_SUMMARY) :]
        return WindowRow(
            start_ms,
            end_ms,
            orjson.dumps(key_values).decode(),
            count,
            [_plain(value) for value in part_values],
            Tally(ending, xor or 0),
            None if self._step.window is not None else _folded_event(*window),
        )

    def _in_windows(self, frame: DataFrame, window: StepWindow) -> DataFrame:
        """The events with `hifi.window`, `hifi.start` and `hifi.end`, once for each window without results.

        Each of them is there once more, with null.
        """
        last_start = f"(`hifi.time` - pmod(`hifi.time`, {window.every_ms}L))"
        first_start = f"{last_start} - {window.size_ms - window.every_ms}L"
        frame = _started(frame, f"sequence({first_start}, {last_start}, {window.every_ms}L)")
        frame = frame.withColumn("hifi.end", sql.expr(f"`hifi.start` + {window.size_ms}L"))
        frame = frame.filter(f"{_IS_OF_VERDICT} or {_HAS_NO_RESULT}")
        # No event that counts is before the horizon, so its last window is among these.
        frame = frame.withColumn("hifi.is_last", sql.expr(f"`hifi.start` = {last_start}"))
        return frame.withColumn("hifi.window", sql.col("`hifi.end`"))

    def _in_sessions(self, frame: DataFrame, gap_ms: int) -> DataFrame:
        """The same for the sessions of these events alone; one that has results may be a part of an open one here."""
        # Events that are in no session stand alone, else those without a key would be sorted together.
        alone = ", ".join(f"if({_IS_FOLDED}, null, {column})" for column in ("partition", "offset"))
        keys = ", ".join(key_columns(self._step))
        events_of_key = f"(partition by {alone}, {keys} order by `hifi.time`, `partition`, `offset`"
        is_first = f"coalesce(`hifi.time` - lag(`hifi.time`) over {events_of_key}) > {gap_ms}L, true)"
        frame = frame.withColumn("hifi.first", sql.expr(f"cast({is_first} as int)"))
        number = f"sum(`hifi.first`) over {events_of_key} rows between unbounded preceding and current row)"
        frame = frame.withColumn("hifi.session", sql.expr(number))
        frame = _started(frame, "array(`hifi.time`)")
        frame = frame.withColumn("hifi.window", sql.expr(f"if({_IS_OF_VERDICT}, null, `hifi.session`)"))
        frame = frame.withColumn("hifi.is_last", sql.expr(f"not ({_IS_OF_VERDICT})"))
        return frame.withColumn("hifi.end", sql.expr(f"`hifi.start` + {gap_ms + 1}L"))

    def _as_events(self, frame: DataFrame) -> DataFrame:
        """The same with each event for itself; `hifi.window` has the values of its `FoldedEvent`."""
        step = self._step
        frame = _started(frame, "array(`hifi.time`)")
        beyond_ms = 1 if step.join is None else step.length_ms + 1
        frame = frame.withColumn("hifi.end", sql.expr(f"`hifi.start` + {beyond_ms}L"))
        frame = frame.withColumn("hifi.is_last", sql.expr(f"not ({_IS_OF_VERDICT})"))
        frame = frame.filter(f"{_IS_OF_VERDICT} or `hifi.needed` is null or `hifi.start` >= `hifi.needed`")
        members = ["partition", "`hifi.raw`", f"coalesce({header_text('ce_id')}, {identity_field(SEQ)})"]
        if step.join is not None:
            values = f"if({_HAS_NO_RESULT}, cast(`hifi.row`.patch.values as binary), null)"
            members += ["cast(null as string)", values, "`hifi.of_with`"]
        if step.first is not None:
            is_attribute = f"startswith(h.key, {literal(CE_PREFIX)}) or h.key = {literal(CONTENT_TYPE)}"
            attributes = f"filter(headers, h -> h.value is not null and ({is_attribute}))"
            attributes_json = f"to_json(transform({attributes}, h -> array(h.key, cast(h.value as string))))"
            members += [f"if({_HAS_NO_RESULT}, {member}, null)" for member in (attributes_json, "value")]
        window = f"if({_IS_OF_VERDICT}, null, struct({', '.join(members)}))"
        return frame.withColumn("hifi.window", sql.expr(window))


def _started(frame: DataFrame, starts: str) -> DataFrame:
    """The events with `hifi.start`: a row with null stands for the event and its verdict, each other one for a window.

    Args:
        frame: of judged events.
        starts: SQL of an array, bigint.
    """
    of_event = f"if({_IS_FOLDED}, {starts}, array())"
    return frame.withColumn(
        "hifi.start", sql.expr(f"explode(concat(array(cast(null as bigint)), {of_event}))")
    )


def _summary(groups: Iterable[Sequence[Any]]) -> RangeSummary:
    """The summary of a range.

    Args:
        groups: verdict, partition, whether the events are of the pipe `with` of a join, and the columns of `_SUMMARY`.
    """
    summary = RangeSummary()
    last_unstamped: dict[int, tuple[int, bool]] = {}
    """`lane` to the offset of the last record without a stamp, and whether it is a heartbeat."""
    for (
        verdict,
        partition,
        of_with,
        count,
        xor,
        stamp,
        raw,
        earliest,
        latest,
        unstamped,
        first,
        last,
        accepted,
        restart,
    ) in groups:
        number = lane(partition, of_with=of_with)
        summary.highest_stamps = raised(summary.highest_stamps, _known(number, stamp))
        if unstamped is not None:
            newest = unstamped, verdict == HEARTBEAT
            last_unstamped[number] = max(newest, last_unstamped.get(number, newest))
        if verdict == HEARTBEAT:
            continue
        summary.raws = raised(summary.raws, _known(partition, raw))
        summary.newest_ms = raised(summary.newest_ms, _known(partition, accepted))
        if restart is not None:
            summary.restarts[partition] = min(restart, summary.restarts.get(partition, restart))
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


def _known(key: int, number: int | None) -> dict[int, int]:
    return {} if number is None else {key: number}


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


def _plain(value: Any) -> Any:
    """A value of a part as `WindowFile` keeps it: Spark sums whole numbers as decimals."""
    return value if value is None or isinstance(value, int | float | str) else int(value)
