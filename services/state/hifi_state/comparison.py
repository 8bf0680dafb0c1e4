"""Compares what two declarations of a step make of the same events, as `hifi step compare` shows it."""

import math
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from pyspark.sql import DataFrame

from hifi.pipe.sources.step import StepSource
from hifi.runtime.errors import Misconfigured
from hifi.spark.catalyst import Catalyst
from hifi_state.explanation import EnrichedRecord, parts_from_restarts, raws_at, record_frame
from hifi_state.fold.declaration import StepDeclaration
from hifi_state.fold.judged_events import FoldRules
from hifi_state.fold.progress import Progress, lane
from hifi_state.fold.range_folder import FoldedRange, RangeFolder
from hifi_state.fold.step_file import step_file
from hifi_state.fold.takeover import complete_from_ms
from hifi_state.fold.window_row import WindowRow

OTHER_KIND: Final = "kind"
OTHER_KEY: Final = "key"
OTHER_WINDOWS: Final = "windows"
"""None of the others has this start and length."""
APART: Final = "apart"
"""The events of a pair are, for the other `within`."""
OTHER_EVENTS: Final = "events"
"""The events do not count there, or in another result."""
_MOST_EXAMPLES: Final = 3
_MOST_FILE_BYTES: Final = 2**30
_PRECISION: Final = 1e-9
"""Relative difference up to which doubles are equal: sums differ in the last digits when computed in another order."""


class Change(NamedTuple):
    """A difference between two declarations.

    Attributes:
        path: of the key in `source`; or a field of a pipe that is read, whose type differs.
        kept: value in the declaration in force; None: there is none.
        declared: in the other one.
    """

    path: str
    kept: Any
    declared: Any


class ResultDifference(NamedTuple):
    """A result that is not the same by both declarations.

    Attributes:
        place: its key and window, or its key and the ids of its events.
        kept: its fields by the declaration in force; None: it has no such result.
        declared: by the other one.
    """

    place: Mapping[str, Any]
    kept: Mapping[str, Any] | None
    declared: Mapping[str, Any] | None


@dataclass
class StepDifferences:
    """Differences of the results that two declarations make of the same events.

    Attributes:
        changes: what differs between the declarations.
        events: verdicts by the declaration in force and by the other one, to number of events.
        from_ms: results after this time have all their events, milliseconds since 1970 UTC.
        until_ms: results up to this time are known; None: none is.
        equal: number of results between these times.
        differing: number of those that both have, with other values.
        fields: field to number of results in which it differs.
        only_kept: number of results that only the declaration in force has, by the reason.
        only_declared: number of those that only the other one has.
        examples: a few of each.
    """

    changes: Sequence[Change]
    events: Counter[tuple[str, str]]
    from_ms: int
    until_ms: int | None
    equal: int = 0
    differing: int = 0
    fields: Counter[str] = field(default_factory=Counter)
    only_kept: Counter[str] = field(default_factory=Counter)
    only_declared: Counter[str] = field(default_factory=Counter)
    examples: list[ResultDifference] = field(default_factory=list)

    def add_example(self, number: int, difference: ResultDifference) -> None:
        """Keep a difference as an example, if it is one of the first of its kind."""
        if number <= _MOST_EXAMPLES:
            self.examples.append(difference)


class StepComparison:
    """Computes two declarations over the same records, which come in ranges."""

    def __init__(
        self,
        catalyst: Catalyst,
        pipe: str,
        progress: Progress,
        declaration: StepDeclaration,
        start: Mapping[int, int],
        folder: Path,
    ) -> None:
        """Compile both declarations.

        Args:
            catalyst: of any Spark session.
            pipe: of the step.
            progress: of the step, from `folds`, with the declaration in force.
            declaration: the other one, which reads the same pipes.
            start: partition to the offset of the first record.
            folder: for files with all results.

        Raises:
            SqlProblem: this Spark rejects an expression.
        """
        self._spark = catalyst.spark
        kept_declaration = StepDeclaration.of_text(progress.step)
        self._changes = _changes(kept_declaration, declaration)
        self._sides = (
            _DeclaredSide(catalyst, pipe, kept_declaration, progress, folder / "kept"),
            _DeclaredSide(catalyst, pipe, declaration, progress, folder / "declared"),
        )
        self._unmarked = {
            lane(partition, of_with=of_with)
            for partition, offset in start.items()
            for of_with in (False, True)[: len(progress.pipes)]
            if offset
        }
        """Lanes with earlier records, whose latest time is not known yet."""
        self._first_marks = {
            number: progress.highest_stamps[number]
            for number in self._unmarked & progress.highest_stamps.keys()
        }
        """Lane to a time after which no event before the first record is."""
        self._events: Counter[tuple[str, str]] = Counter()
        self._restarts = progress.restarts

    def add(self, records: Sequence[EnrichedRecord]) -> None:
        """Compute the next records of the log.

        Raises:
            Misconfigured: the results are too large.
        """
        for part in parts_from_restarts(records, self._restarts):
            self._add(part)

    def _add(self, records: Sequence[EnrichedRecord]) -> None:
        frame = record_frame(self._spark, records)
        end = {record.partition: record.offset + 1 for record in records}
        ranges: list[FoldedRange] = []
        try:
            for side in self._sides:
                raws = raws_at(records[0], side.progress.raws, self._restarts)
                side.progress = replace(side.progress, raws=raws)
                ranges.append(side.fold(frame, end))
            if self._unmarked:
                stamps = ranges[0].first_stamps()
                self._first_marks |= {number: stamps[number] for number in self._unmarked & stamps.keys()}
                self._unmarked -= stamps.keys()
            verdicts = (folded.verdicts() for folded in ranges)
            self._events.update(
                (kept_verdicts[-1], declared_verdicts[-1])
                for kept_verdicts, declared_verdicts in zip(*verdicts, strict=True)
            )
        finally:
            for folded in ranges:
                folded.release()
        if max(side.file.size_bytes() for side in self._sides) > _MOST_FILE_BYTES:
            raise Misconfigured(
                f"the results need more than {_MOST_FILE_BYTES >> 20} MiB: compare a shorter time"
            )

    def compared(self) -> StepDifferences:
        """The comparison of all records."""
        first_ms = max(self._first_marks.values(), default=-1) + 1
        from_ms = max(complete_from_ms(side.step, first_ms) for side in self._sides) if first_ms else 0
        horizons_ms = [side.progress.horizon_ms for side in self._sides]
        known_horizons_ms = [horizon_ms for horizon_ms in horizons_ms if horizon_ms is not None]
        until_ms = min(known_horizons_ms) if known_horizons_ms == horizons_ms else None
        comparison = StepDifferences(self._changes, self._events, from_ms, until_ms)
        if until_ms is not None:
            with closing(sqlite3.connect("", isolation_level=None)) as database:
                self._compare_results(database, comparison, until_ms)
        return comparison

    def _compare_results(
        self, database: sqlite3.Connection, comparison: StepDifferences, until_ms: int
    ) -> None:
        """Fill the comparison.

        Args:
            database: an empty one, for the results of the declaration in force.
            comparison: with its times.
            until_ms: of it.
        """
        kept_side, declared_side = self._sides
        database.execute("begin")
        database.execute("create table kept (id blob primary key, reason text, result blob)")
        for row in kept_side.comparable(declared_side.step, comparison.from_ms, until_ms):
            reason, result = kept_side.absence(row, declared_side.step), orjson.dumps(kept_side.result(row))
            database.execute("insert into kept values (?, ?, ?)", (kept_side.id_of(row), reason, result))
        common_names = kept_side.fields & declared_side.fields
        for row in declared_side.comparable(kept_side.step, comparison.from_ms, until_ms):
            result_id = declared_side.id_of(row)
            place, fields = declared_side.result(row)
            kept_result = database.execute("select result from kept where id = ?", (result_id,)).fetchone()
            if kept_result is None:
                comparison.only_declared[declared_side.absence(row, kept_side.step)] += 1
                comparison.add_example(
                    comparison.only_declared.total(), ResultDifference(place, None, fields)
                )
                continue
            database.execute("delete from kept where id = ?", (result_id,))
            _, kept_fields = orjson.loads(kept_result[0])
            differing_names = [
                name for name in common_names if not _are_equal(kept_fields[name], fields[name])
            ]
            if not differing_names:
                comparison.equal += 1
                continue
            comparison.fields.update(differing_names)
            comparison.differing += 1
            comparison.add_example(comparison.differing, ResultDifference(place, kept_fields, fields))
        for reason, result in database.execute("select reason, result from kept order by rowid"):
            place, fields = orjson.loads(result)
            comparison.only_kept[reason] += 1
            comparison.add_example(comparison.only_kept.total(), ResultDifference(place, fields, None))

    def close(self) -> None:
        """Close the files."""
        for side in self._sides:
            side.file.close()


class _DeclaredSide:
    """The results that one declaration makes of the records; its file keeps all of them."""

    def __init__(
        self, catalyst: Catalyst, pipe: str, declaration: StepDeclaration, progress: Progress, path: Path
    ) -> None:
        self.step: Final = declaration.step
        self.fields: Final = {name for step_input in self.step.inputs for name in step_input.fields}
        self._folder = RangeFolder(catalyst, pipe, declaration, path.name)
        self.file: Final = step_file(self._folder, path)
        self._judged = progress.judged
        self.progress = replace(
            progress,
            raws={},
            horizon_ms=None,
            emitted_ms=None,
            bases=(),
            judged=(),
            takeover=None,
            own_times=None,  # what the other colour has is the same for both
            elsewhere=(),
        )

    def fold(self, records: DataFrame, end: Mapping[int, int]) -> FoldedRange:
        """Fold the next range; `end`: partition to the offset after it."""
        rules = FoldRules(max(end) + 1, self.progress.raws, None, judged=self._judged)
        folded = self._folder.fold(records, rules, keeps_events=True)
        try:
            rows = folded.rows(self.file.limit())
            self.progress = self.progress.after(folded.summary, end, None, self.step.lateness_ms)
            self.file.apply(rows, replace(self.progress, horizon_ms=None, emitted_ms=None))
        except BaseException:
            folded.release()
            raise
        return folded

    def comparable(self, other: StepSource, from_ms: int, until_ms: int) -> Iterator[WindowRow]:
        """The rows of the results between two times, which the other declaration has there, too, if it has them."""
        longest_ms = max(self.step.length_ms, other.length_ms)
        for row in self.file.due(until_ms):
            first_ms, last_ms = row.end_ms, row.end_ms
            if self.step.gap_ms is not None:
                first_ms = row.start_ms + 1
            elif self._kind == "join" and row.partner is None:  # it is written `within` later
                first_ms, last_ms = row.start_ms + 1, row.start_ms + 1 + longest_ms
            if first_ms > from_ms and last_ms <= until_ms:
                yield row

    def result(self, row: WindowRow) -> tuple[dict[str, Any], dict[str, Any]]:
        """Place and fields of the result of a row; an event that passes on is the same by any declaration."""
        if row.event is not None and self.step.first is not None:
            return {"event": row.event.id, **dict(zip(self.step.key, orjson.loads(row.key), strict=True))}, {}
        (event,) = self._folder.results.of([row])
        body = orjson.loads(event.data or b"")
        return body, {name: body.pop(name) for name in list(body) if name in self.fields}

    def id_of(self, row: WindowRow) -> bytes:
        """The id of a result, which is equal for the same result of another declaration."""
        if row.event is None:
            key = sorted(zip(self.step.key, orjson.loads(row.key), strict=True))
            return orjson.dumps([self._kind, row.start_ms, row.end_ms, key])
        events = [event and event[:3] for event in (row.event, row.partner)]
        return orjson.dumps([self._kind, events])

    def absence(self, row: WindowRow, other: StepSource) -> str:
        """Why the other declaration has no such result, if it has none."""
        window, other_window = self.step.window, other.window
        if self._kind != _kind(other):
            return OTHER_KIND
        if window is not None and other_window is not None:
            if self.step.key != other.key:
                return OTHER_KEY
            is_begin = not window.every_ms or row.start_ms % other_window.every_ms == 0
            if window.size_ms != other_window.size_ms or not is_begin:
                return OTHER_WINDOWS
        is_pair = row.partner is not None
        return APART if is_pair and row.end_ms - 1 - row.start_ms > other.length_ms else OTHER_EVENTS

    @property
    def _kind(self) -> str:
        return _kind(self.step)


def _kind(step: StepSource) -> str:
    """The kind of a step's results."""
    if step.gap_ms is not None:
        return "session"
    kinds = {"window": step.window, "each": step.each, "first": step.first, "join": step.join}
    return next(name for name, kind in kinds.items() if kind is not None)


def _changes(kept: StepDeclaration, declared: StepDeclaration) -> list[Change]:
    """The differences between two declarations of a step, in the order of their keys."""
    kept_values, declared_values = _values(kept), _values(declared)
    paths = dict.fromkeys([*kept_values, *declared_values])
    return [
        Change(path, kept_values.get(path), declared_values.get(path))
        for path in paths
        if kept_values.get(path) != declared_values.get(path)
    ]


def _values(declaration: StepDeclaration) -> dict[str, Any]:
    """Path to value of all that a declaration says."""
    values = dict(_leaves("", declaration.step.model_dump(mode="json", by_alias=True)))
    for pipe, types in zip(declaration.step.read_pipes, declaration.types, strict=True):
        values |= {f"{pipe}: {name}": kind for name, kind in types.items()}
    return values


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _leaves(f"{path}.{name}" if path else name, member)
    else:
        yield path, value


def _are_equal(first_value: Any, second_value: Any) -> bool:
    if isinstance(first_value, float) and isinstance(second_value, float):
        return math.isclose(first_value, second_value, rel_tol=_PRECISION)
    return first_value == second_value and isinstance(first_value, bool) == isinstance(second_value, bool)
